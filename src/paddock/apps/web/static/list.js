// A list of any length, of which only what is in sight stands in the document.
import { button, h, told } from "./dom.js";

const SPARE = 8;
let lists = 0;

export class Rows {
  // `draw(item)` gives the children of a row; `choose(item)` is told what was opened;
  // `more()` is asked for older items near the end.
  constructor({ label, draw, choose, more = () => {}, kind = "calls" }) {
    Object.assign(this, { draw, choose, more, items: [], active: -1, chosen: null, made: new Map() });
    this.id = `list-${(lists += 1)}`;
    this.space = h("div.space", { role: "presentation" });
    const onclick = (event) => this.open(event.target.closest(".row")?.dataset.at);
    const does = { onscroll: () => this.show(), onkeydown: (event) => this.press(event), onclick };
    this.place = h(`div.rows.${kind}`, { role: "listbox", tabindex: "0", "aria-label": label, ...does }, this.space);
    new ResizeObserver(() => this.show()).observe(this.place);
  }

  get height() {
    return parseFloat(getComputedStyle(this.place).getPropertyValue("--row")) || 40;
  }

  // Items have a `key`. What is looked at stays in its place when others arrive above it.
  set(items) {
    const { height, place } = this;
    const top = this.items[Math.floor(place.scrollTop / height)]?.key;
    const active = this.items[this.active]?.key;
    this.items = items;
    this.made.forEach((row) => row.remove());
    this.made.clear();
    this.active = active === undefined ? -1 : items.findIndex((item) => item.key === active);
    this.show();
    const moved = place.scrollTop > 0 ? items.findIndex((item) => item.key === top) : -1;
    if (moved > 0) place.scrollTop = moved * height + (place.scrollTop % height);
    this.show();
  }

  pick(key) {
    this.chosen = key;
    const at = this.items.findIndex((item) => item.key === key);
    if (at >= 0) this.active = at;
    this.made.forEach((row, each) => this.mark(row, each));
  }

  show() {
    const { height, items, made, place, space } = this;
    space.style.height = `${items.length * height}px`;
    const from = Math.max(0, Math.floor(place.scrollTop / height) - SPARE);
    const to = Math.min(items.length, Math.ceil((place.scrollTop + place.clientHeight) / height) + SPARE);
    for (const [at, row] of made) {
      if (at >= from && at < to) continue;
      row.remove();
      made.delete(at);
    }
    for (let at = from; at < to; at += 1) {
      const row = made.get(at) ?? this.make(at);
      row.style.top = `${at * height}px`;
    }
    if (to && to >= items.length) this.more();
  }

  make(at) {
    const place = { id: `${this.id}-${at}`, "aria-posinset": at + 1, "aria-setsize": this.items.length };
    const row = h("div.row", { role: "option", ...place }, this.draw(this.items[at]));
    row.dataset.at = at;
    this.made.set(at, row);
    this.mark(row, at);
    // In the order of the list, which is the order that a screen reader takes.
    const next = [...this.space.children].find((each) => Number(each.dataset.at) > at);
    this.space.insertBefore(row, next ?? null);
    return row;
  }

  mark(row, at) {
    row.classList.toggle("active", at === this.active);
    row.setAttribute("aria-selected", String(this.items[at]?.key === this.chosen));
    if (at === this.active) this.place.setAttribute("aria-activedescendant", row.id);
  }

  open(at) {
    if (this.items[at]) this.choose(this.items[at]);
  }

  press(event) {
    const page = Math.max(1, Math.floor(this.place.clientHeight / this.height) - 1);
    const last = this.items.length - 1;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" || event.key === " ") this.open(this.active);
    else if (!steps[event.key]) return;
    else this.go(Math.min(last, Math.max(0, this.active + steps[event.key])));
    event.preventDefault();
  }

  go(at) {
    const { height, place } = this;
    this.active = at;
    const above = at * height;
    if (above < place.scrollTop) place.scrollTop = above;
    else if (above + height > place.scrollTop + place.clientHeight) {
      place.scrollTop = above + height - place.clientHeight;
    }
    this.show();
    this.made.forEach((row, each) => this.mark(row, each));
  }
}

// A list, and what was chosen of it beside it; in a narrow window one or the other.
// `show(item)` makes what is shown of one, `address(item)` where that stands.
export const browse = ({ show, address, signal, ...wanted }) => {
  const detail = h("article.detail", { tabindex: "-1" });
  const open = async (item) => {
    place.classList.add("open");
    list.pick(item.key);
    history.replaceState(null, "", address(item));
    const found = await show(item).catch(told);
    // Something else may have been chosen meanwhile.
    if (signal.aborted || list.chosen !== item.key) return;
    detail.replaceChildren(button("Close", close, "quiet.close"), found);
    detail.scrollTop = 0;
  };
  const close = () => {
    place.classList.remove("open");
    list.pick(null);
    history.replaceState(null, "", address());
    list.place.focus();
  };
  const list = new Rows({ ...wanted, choose: open });
  const place = h("div.split", list.place, detail);
  return { list, place, open, detail };
};
