// Requests to the server, and the stream of its events.

const TOKEN = "paddock.token";
const READS = "paddock.reads";
const JSON_TYPE = { "Content-Type": "application/json" };
const RETRY_MS_MAX = 10_000;

export class Refused extends Error {
  constructor(status, error = {}) {
    super(error.message ?? `the server answered ${status}`);
    Object.assign(this, { status, code: error.code, hint: error.hint, where: error.where });
  }
}

// Threat: where text is expected an agent could write an object, and `h` would use it as attributes.
// Objects from the server have no prototype; attributes that the page writes have one.
const bare = (_, value) =>
  value && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value;
const parsed = (text) => JSON.parse(text, bare);

const live = new EventTarget();
export const on = (name, act, signal) =>
  live.addEventListener(name, ({ detail }) => act(detail), { signal });
const tell = (name, detail) => live.dispatchEvent(new CustomEvent(name, { detail }));

// The link's code works once: it is exchanged for a token that only this tab holds.
export const enter = async () => {
  const given = /^#code=(.+)$/.exec(location.hash);
  if (!given) return;
  history.replaceState(null, "", location.pathname + location.search);
  const found = await request("/api/exchange", { code: decodeURIComponent(given[1]) });
  sessionStorage.setItem(TOKEN, found.token);
  sessionStorage.setItem(READS, found.read_only);
};

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;
export const mayAct = () => sessionStorage.getItem(READS) !== "true";

const ask = (path, { headers, ...options } = {}) => {
  const token = sessionStorage.getItem(TOKEN);
  const bearer = token ? { Authorization: `Bearer ${token}` } : {};
  return fetch(path, { ...options, headers: { ...headers, ...bearer }, cache: "no-store" });
};

const answered = async (answer) => {
  if (answer.ok) return answer;
  throw new Refused(answer.status, (await answer.json().catch(() => ({}))).error);
};

const request = async (path, body, signal) => {
  const posted = body && { method: "POST", headers: JSON_TYPE, body: JSON.stringify(body) };
  return parsed(await (await answered(await ask(path, { ...posted, signal }))).text());
};

export const query = (wanted) =>
  new URLSearchParams(Object.entries(wanted).filter(([, value]) => value)).toString();

export const get = (path, wanted = {}, signal = null) => request(`/api/${path}?${query(wanted)}`, null, signal);
export const post = (path, body, signal = null) => request(`/api/${path}`, body, signal);

export const download = async (path, wanted, name) => {
  const answer = await answered(await ask(`/api/${path}?${query(wanted)}`));
  const address = URL.createObjectURL(await answer.blob());
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  URL.revokeObjectURL(address);
};

// EventSource cannot send headers, so the stream is read with fetch.
const read = async (onEvent) => {
  const answer = await answered(await ask("/api/stream"));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (left + value).split("\n\n");
    left = parts.pop();
    for (const part of parts) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(part) ?? [];
      if (name) onEvent(name, parsed(data));
    }
  }
};

export const follow = async () => {
  let wait = 1000;
  for (;;) {
    try {
      await read((name, detail) => {
        wait = 1000;
        if (name === "hello") tell("state", "live");
        tell(name, detail);
      });
      tell("state", "away");
    } catch ({ status }) {
      if (status === 401) return tell("state", "closed");
      tell("state", status === 503 ? "full" : "away");
    }
    await new Promise((wake) => setTimeout(wake, wait));
    wait = Math.min(wait * 2, RETRY_MS_MAX);
  }
};
