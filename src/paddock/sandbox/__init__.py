"""What this host can enforce on commands. Commands themselves come later."""
