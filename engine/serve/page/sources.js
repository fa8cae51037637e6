// The live sources of this server: pictures of a few at a time, and the state of all.

import { request } from "./api.js";

const AT_ONCE = 4; // a browser opens six connections to a server, and the page needs some itself
const SECONDS = 2; // between two looks at the state

export async function showSources(section, list) {
  const { sources } = await state();
  section.hidden = !sources.length;
  if (!sources.length) return;
  const cards = sources.map(card);
  list.replaceChildren(...cards.map((each) => each.figure));
  cards.forEach((each, number) => {
    describe(each, sources[number]);
    each.button.addEventListener("click", () => (each.watching ? stop(each, cards) : watch(each, cards)));
    if (number < AT_ONCE) watch(each, cards);
  });
  look(cards);
}

const state = () => request("sources").then((response) => response.json());

async function look(cards) {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * SECONDS));
    if (document.hidden) continue;
    const found = await state().catch(() => null);
    cards.forEach((each, number) => describe(each, found?.sources[number]));
  }
}

function card({ name, mjpeg }) {
  const figure = document.createElement("figure");
  figure.className = "source";
  const image = document.createElement("img");
  image.alt = `Live: ${name}`;
  const caption = document.createElement("figcaption");
  const title = document.createElement("strong");
  title.textContent = name;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button";
  const text = document.createElement("p");
  caption.append(title, button, text);
  figure.append(image, caption);
  return { figure, image, button, text, path: mjpeg.slice(1), watching: null };
}

function describe({ figure, text }, source) {
  figure.classList.toggle("lost", !source || Boolean(source.error));
  if (!source) text.textContent = "The server does not respond.";
  else text.textContent = source.error ?? `${source.state} · ${source.frames} frames · ${source.fps.toFixed(1)} a second`;
}

async function watch(each, cards) {
  const watching = new AbortController();
  each.watching = watching;
  update(cards);
  while (!watching.signal.aborted) {
    try {
      // An img element could not send the token.
      const response = await request(each.path, { signal: watching.signal });
      await readPictures(response.body.getReader(), (jpeg) => show(each.image, jpeg));
    } catch {
      // The state says what is wrong. The stream is asked for again.
    }
    await new Promise((resolve) => setTimeout(resolve, 1000 * SECONDS));
  }
}

function stop(each, cards) {
  each.watching.abort();
  each.watching = null;
  update(cards);
}

function update(cards) {
  const isFull = cards.filter((each) => each.watching).length >= AT_ONCE;
  for (const { button, watching } of cards) {
    button.textContent = watching ? "Stop" : "Watch";
    button.disabled = !watching && isFull;
  }
}

function show(image, jpeg) {
  const before = image.src;
  image.src = URL.createObjectURL(new Blob([jpeg], { type: "image/jpeg" }));
  if (before) URL.revokeObjectURL(before);
}

// Calls `onPicture` with the bytes of each part of multipart/x-mixed-replace.
async function readPictures(reader, onPicture) {
  let bytes = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const joined = new Uint8Array(bytes.length + value.length);
    joined.set(bytes);
    joined.set(value, bytes.length);
    bytes = joined;
    for (;;) {
      const head = new TextDecoder("latin1").decode(bytes.subarray(0, 256));
      const length = Number(/Content-Length: (\d+)\r\n\r\n/.exec(head)?.[1]);
      const start = head.indexOf("\r\n\r\n") + 4;
      if (!length || bytes.length < start + length + 2) break;
      onPicture(bytes.slice(start, start + length));
      bytes = bytes.slice(start + length + 2); // the part ends with a line break
    }
  }
}
