// The library of the npm sandbox runtime in a running process, as an agent embeds it:
//     node srt_library.mjs MODULE SETTINGS
// Each line of the input is a command; each line of the output its exit code.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [module, settings] = process.argv.slice(2)
const { SandboxManager } = await import(module)
await SandboxManager.initialize(JSON.parse(readFileSync(settings, 'utf8')))
console.log('ready')
for await (const line of createInterface({ input: process.stdin })) {
  const wrapped = await SandboxManager.wrapWithSandbox(line)
  const child = spawn(wrapped, { shell: true, stdio: 'ignore' })
  const [code] = await once(child, 'exit')
  SandboxManager.cleanupAfterCommand()
  console.log(code)
}
await SandboxManager.reset()
