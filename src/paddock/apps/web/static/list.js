// A list of any length: only the visible rows are in the document.
import { button, h, problemOf, soon } from "./dom.js";

const STEP = 20;
let lists = 0;

export class Rows {
  // `draw(item)` returns the children of a row; `choose(item)` is called when one is opened;
  // `more()` is called near the end, to load older items.
  constructor({ label, draw, choose, more = () => {}, kind = "calls" }) {
    Object.assign(this, { draw, choose, more, items: [], active: -1, chosen: null, from: -1 });
    this.id = `list-${(lists += 1)}`;
    this.space = h("div.space", { role: "presentation" });
    const onclick = (event) => this.open(event.target.closest(".row")?.dataset.at);
    const does = { onscroll: () => this.show(), onkeydown: (event) => this.press(event), onclick };
    this.place = h(`div.rows.${kind}`, { role: "listbox", tabindex: "0", "aria-label": label, ...does }, this.space);
    const resized = () => requestAnimationFrame(() => this.set(this.items));
    new ResizeObserver(resized).observe(this.place);
  }

  get height() {
    return parseFloat(getComputedStyle(this.place).getPropertyValue("--row")) || 40;
  }

  indexOf(key) {
    return this.items.findIndex((item) => item.key === key);
  }

  // Items have a `key`. The visible rows keep their place when others arrive above them.
  set(items) {
    const { height, place } = this;
    const top = this.items[Math.floor(place.scrollTop / height)]?.key;
    const active = this.items[this.active]?.key;
    Object.assign(this, { items, from: -1 });
    this.active = this.indexOf(active);
    this.space.style.height = `${items.length * height}px`;
    const moved = place.scrollTop > 0 ? this.indexOf(top) : -1;
    if (moved > 0) place.scrollTop = moved * height + (place.scrollTop % height);
    this.show();
  }

  pick(key) {
    this.chosen = key;
    if (this.indexOf(key) >= 0) this.active = this.indexOf(key);
    this.mark();
  }

  // Redraws only when other rows become visible, so that the element under the pointer stays.
  show() {
    const { height, items, place } = this;
    const from = Math.max(0, (Math.floor(place.scrollTop / height / STEP) - 1) * STEP);
    const to = from + 3 * STEP + Math.ceil(place.clientHeight / height);
    if (from !== this.from) {
      const row = (item, each) => this.make(item, from + each, height);
      this.space.replaceChildren(...items.slice(from, to).map(row));
      this.from = from;
      this.mark();
    }
    if (items.length && to >= items.length) this.more();
  }

  make(item, at, height) {
    const place = { id: `${this.id}-${at}`, "aria-posinset": at + 1, "aria-setsize": this.items.length };
    const row = h("div.row", { role: "option", ...place }, this.draw(item));
    row.dataset.at = at;
    row.style.top = `${at * height}px`;
    return row;
  }

  mark() {
    for (const row of this.space.children) {
      const at = Number(row.dataset.at);
      row.classList.toggle("active", at === this.active);
      row.setAttribute("aria-selected", String(this.items[at]?.key === this.chosen));
    }
    const active = this.space.querySelector(".active");
    if (active) this.place.setAttribute("aria-activedescendant", active.id);
    else this.place.removeAttribute("aria-activedescendant");
  }

  open(at) {
    if (this.items[at]) this.choose(this.items[at]);
  }

  press(event) {
    const { height, place } = this;
    const page = Math.max(1, Math.floor(place.clientHeight / height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" || event.key === " ") this.open(this.active);
    else if (!steps[event.key]) return;
    else {
      this.active = Math.min(this.items.length - 1, Math.max(0, this.active + steps[event.key]));
      const above = this.active * height;
      place.scrollTop = Math.max(above + height - place.clientHeight, Math.min(above, place.scrollTop));
      this.show();
      this.mark();
    }
    event.preventDefault();
  }
}

export const isWide = () => innerWidth >= 1100;

// A page with a list and the chosen item beside it; in a narrow window only one of them.
// `load()` returns the items, `show(item)` the detail of one, `address(item)` its address,
// and `first(items)` the item to open at the start.
export const browse = async ({ head, load, show, address, first, signal, ...wanted }) => {
  const detail = h("article.detail", { tabindex: "-1" });
  const open = async (item) => {
    place.classList.add("open");
    list.pick(item.key);
    // In a narrow window it is a page of its own, which Back leaves.
    const isPage = !isWide() && address(item) !== location.pathname + location.search;
    history[isPage ? "pushState" : "replaceState"](null, "", address(item));
    const found = await Promise.resolve(item).then(show).catch(problemOf);
    // Another item may have been chosen meanwhile.
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
  const reload = async () => list.set(await load());
  await reload();
  const item = first(list.items);
  if (item) await open(item);
  const again = () => reload().catch(() => {});
  return { list, open, detail, reload: again, soon: soon(again, 300), page: [h("div.head", head), place] };
};
