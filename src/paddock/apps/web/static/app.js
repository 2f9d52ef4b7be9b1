// The frame around the pages: sign-in, navigation, connection state, alerts, count of questions.
import { Refused, enter, follow, get, hasToken, mayAct, on } from "./api.js";
import { isWaiting, verb } from "./calls.js";
import { count, h, problemOf, soon, visible } from "./dom.js";

const PAGES = ["now", "inbox", "timeline", "files", "policy", "sessions", "ledgers"];
const at = (id) => document.getElementById(id);
const main = at("main");
const STATES = { live: "Live", closed: "Closed", away: "No connection, trying again", full: "Too many windows open" };

let leaving = new AbortController();
let [waiting, title] = [null, "Paddock"];

const retitle = () => {
  document.title = `${waiting?.length ? `(${waiting.length}) ` : ""}${title} · Paddock`;
};

const failed = (problem) => {
  const isShut = problem.status === 401 || problem.code === "web.code";
  const help = ["Each link opens one window. For another, press Enter where ", h("code", "paddock web"), " runs."];
  const title = isShut ? "This link is no longer valid" : "That did not work";
  return h("div.failure", { role: "alert" }, h("h1", title), problemOf(problem), isShut && h("p", help));
};

const open = async () => {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const name = PAGES.find((each) => location.pathname === `/${each}`) ?? "now";
  const link = document.querySelector(`nav a[href="/${name}"]`);
  document.querySelector("nav [aria-current]")?.removeAttribute("aria-current");
  link.setAttribute("aria-current", "page");
  title = link.firstChild.data.trim();
  retitle();
  main.setAttribute("aria-busy", "true");
  try {
    const { page } = await import(`/static/${name}.js`);
    const made = await page(Object.fromEntries(new URLSearchParams(location.search)), signal);
    if (!signal.aborted) main.replaceChildren(...[made].flat().filter(Boolean));
  } catch (problem) {
    if (signal.aborted) return;
    main.replaceChildren(failed(problem));
  }
  main.removeAttribute("aria-busy");
};

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  open();
  main.focus({ preventScroll: true });
});
addEventListener("popstate", open);

const alerts = new Map();
const alertOf = (about, ...said) => {
  alerts.set(about, h("p.alert", said));
  at("alerts").replaceChildren(...alerts.values());
};
const damaged = ({ ledger, error: { message, where = "" } }) => {
  const title = h("strong", `The ledger ${ledger} is damaged. `);
  alertOf(ledger, title, `${message} ${where} `, h("a", { href: "/ledgers" }, "Show the ledgers"));
};

// Shows the number of waiting questions in the title, and notifies about new ones if allowed.
const countWaiting = async () => {
  const { requests } = await get("inbox");
  const asked = requests.filter(isWaiting);
  const fresh = waiting && asked.filter((each) => !waiting.includes(each.id));
  waiting = asked.map((each) => each.id);
  at("waiting").hidden = asked.length === 0;
  at("waiting").replaceChildren(`${asked.length}`, h("span.hidden", asked.length === 1 ? " waits" : " wait"));
  retitle();
  if (!fresh?.length || globalThis.Notification?.permission !== "granted") return;
  const [{ agent, tool, actions, id }] = fresh;
  const body = visible(`${agent} wants to ${verb(tool)} ${(actions[0] ?? "").split(" ").slice(1).join(" ")}`);
  new Notification(count(fresh.length, "question waits", "questions wait"), { body, tag: id });
};

const offerNotices = () => {
  const offer = at("notify");
  offer.hidden = globalThis.Notification?.permission !== "default";
  offer.addEventListener("click", async () => {
    await Notification.requestPermission();
    offer.hidden = true;
  });
};

const state = (name) => {
  at("live").dataset.state = name;
  at("live").textContent = STATES[name];
  const help = ["The access of this window has ended: run ", h("code", "paddock web"), " again."];
  if (name === "closed") alertOf("", help);
};
on("state", state);
on("inbox", soon(countWaiting, 300));
// A call may change the file that a question is about: then the question is outdated.
const recount = soon(countWaiting, 2000);
on("entry", (row) => row.event_type === "TOOL_RESULT" && waiting?.length && recount());
on("damaged", damaged);

const about = async () => {
  const now = await get("now");
  at("project").replaceChildren(h("span", { title: now.root }, now.name));
  if (!mayAct()) at("project").append(h("span.tag", "read only"));
  now.damaged.forEach(damaged);
};

const start = async () => {
  try {
    await enter();
    if (!hasToken()) throw new Refused(401, { message: "This page was opened without a link from paddock web." });
  } catch (problem) {
    return main.replaceChildren(failed(problem));
  }
  offerNotices();
  follow();
  about().catch(() => {});
  if (location.pathname === "/") history.replaceState(null, "", "/now");
  return open();
};

start();
