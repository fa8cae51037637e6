// Sends pictures to this server and shows what it found. Nothing is fetched from other servers.

import { request, ServerError } from "./api.js";
import { colourOf } from "./colours.js";
import * as live from "./live.js";
import { choose, draw, layOut, percent, svg } from "./overlay.js";
import { showSources } from "./sources.js";

const LOWEST = 0.05; // boxes above it are fetched, so that the threshold acts at once
const MOST_BOXES = 1000;
const MOST_ROWS = 200;
const AT_ONCE = 4; // pictures that are sent together, so that the server can run them in a batch
const THUMB_WIDTH = 176;
const MOST_TRIES = 6; // of a request that a full server refuses
const MOST_NAMES = 3; // of files in a message
// What returns no boxes: nothing scores above 1, but codes that are read are returned whatever they score.
const WITHOUT_BOXES = { threshold: 1, read: false, tiles: "none" };
// Control characters but the newline; those that turn the direction of text make an address look like another one.
const UNSEEN = /[^\P{Cc}\n]|[\p{Bidi_Control}\u2028\u2029]/gu;
const UNANSWERED = 0; // the status of a request without a response
const CHANGED = "The browser cannot read the file any more: it was changed, moved or deleted. Choose it again.";
const JPEG = [0xff, 0xd8, 0xff]; // how its files begin
const PLAYED_ALONE = "a video is played alone. Choose it without other files";
const SAMPLES = [
  { file: "parcel.jpg", alt: "Parcel labels with codes", classes: ["qr", "barcode"] },
  { file: "scene.jpg", alt: "A drawn street with a stop sign", classes: ["stop sign", "traffic light"] },
];

const byId = (id) => document.getElementById(id);
const hiddenClasses = new Set();
const items = []; // the pictures: {file, signal, content, url, entry or error}; `content` is what the browser shows
let model = null;
let clearing = new AbortController(); // ends the requests of the pictures that Clear takes away
let current = null; // the item, or the frame of a video, on display
let groups = [];
let shown = []; // the detections on display
let chosen = null;
let following = null; // the AbortController of a camera or a video
let latestFrame = 0; // when its latest result came

const isDetector = () => model.task === "detector";

// ---------------------------------------------------------------- start

async function start() {
  model = await request("model").then((response) => response.json());
  document.title = `${model.model}: what is in your picture?`;
  byId("name").textContent = model.model;
  const count = model.classes.length;
  const facts = [model.task, `${count} ${count === 1 ? "class" : "classes"}`, `${model.width} × ${model.height}`, model.device];
  byId("facts").replaceChildren(...facts.map((text) => element("li", { textContent: text })));
  const some = model.classes.slice(0, 8).join(", ");
  const rest = count > 8 ? ` and ${count - 8} more` : "";
  byId("purpose").textContent = `${isDetector() ? "Finds" : "Recognizes"} ${some}${rest}.`;
  byId("threshold").min = Math.max(0.01, Math.min(LOWEST, Math.floor(model.threshold * 100) / 100)); // steps count from it
  byId("threshold").value = model.threshold;
  byId("score").textContent = threshold().toFixed(2);
  byId("threshold-row").hidden = byId("save-picture").hidden = !isDetector();
  byId("read-note").hidden = !model.read;
  byId("address").hidden = !model.accepts_urls;
  showSamples();
  await showSources(byId("live"), byId("live-sources"));
}

function showSamples() {
  const suitable = SAMPLES.filter(({ classes }) => classes.some((each) => model.classes.includes(each)));
  const buttons = (suitable.length ? suitable : SAMPLES).map(({ file, alt }) => {
    const button = element("button", { type: "button", className: "sample" });
    button.append(element("img", { src: file, alt }));
    button.addEventListener("click", () => addSample(file));
    return button;
  });
  byId("samples").replaceChildren(...buttons);
  byId("examples").hidden = false;
}

async function addSample(name) {
  const content = await fetch(name).then((response) => response.blob());
  await add([new File([content], name, { type: content.type })]);
}

// ---------------------------------------------------------------- pictures

async function add(files) {
  const isVideo = (file) => file.type.startsWith("video/");
  if (files.length === 1 && isVideo(files[0])) return watch((element) => live.openVideo(element, files[0]), files[0].name);
  if (!files.length) return undefined;
  stopFollowing();
  const { signal } = clearing;
  const added = files.map((file) => ({ file, signal, error: isVideo(file) ? new Error(PLAYED_ALONE) : undefined }));
  for (const item of added) addThumb(item);
  items.push(...added);
  startWorking();
  if (!await started.then(() => true, () => false)) return undefined; // a token is asked for, or it failed
  setStatus(added.length > 1 ? `Processing ${added.length} pictures…` : "Processing…");
  show(added[0]);
  const waiting = [...added];
  let done = 0;
  const work = async () => {
    for (let item = waiting.shift(); item; item = waiting.shift()) {
      if (!item.error) await detect(item);
      if (!items.includes(item)) continue; // cleared meanwhile
      done += 1;
      if (done < added.length) setStatus(`Processed ${done} of ${added.length} pictures…`);
      else showProblem(current);
      updateThumb(item);
      byId("save-all").hidden = !hasSeveral();
      if (item === current) await show(item.isChosen ? item : readable(item, added));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (!(current?.error && current.isChosen)) showProblems(added.filter((item) => item.error && items.includes(item)), added.length);
  return undefined;
}

// The first picture is shown at once; if it is broken and nobody chose it, another one that came with it takes its place.
const readable = (item, added) => (item.error && added.find((each) => !each.error)) || item;

function startWorking() {
  document.body.classList.add("working");
  byId("hint").textContent = "Drop or paste more pictures anywhere.";
}

const lowest = () => Math.min(LOWEST, Number(byId("threshold").min));

function path(settings = {}) {
  if (!isDetector()) return "classify";
  return `detect?${new URLSearchParams({ max_detections: MOST_BOXES, ...settings })}`;
}

async function post({ file, signal }, settings, accept = "application/json") {
  const body = new FormData();
  body.append("image", file, file.name || "picture");
  try {
    return await request(path(settings), { method: "POST", body, signal, headers: { Accept: accept } });
  } catch (error) {
    if (error.status === UNANSWERED) await firstBytes(file, 1); // a file that cannot be read fails as a lost server does
    throw error;
  }
}

// Reads a stream, because a slice of a file that was deleted before its first use is empty and no error.
async function firstBytes(file, count) {
  const reader = file.stream().getReader();
  const { value = [] } = await reader.read().catch(() => { throw new Error(CHANGED); });
  await reader.cancel();
  return value.slice(0, count);
}

// Posts again while the server is full, when it says that there may be room.
async function postPatiently(...given) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await post(...given);
    } catch (error) {
      if (error.status !== 503 || !error.seconds || tries === MOST_TRIES) throw error;
      setStatus(`The server is busy. Trying again in ${error.seconds} s…`);
      await new Promise((resolve) => setTimeout(resolve, 1000 * error.seconds));
    }
  }
}

async function detect(item) {
  const began = performance.now();
  try {
    item.entry = await postPatiently(item, { threshold: lowest() }).then((response) => response.json());
    item.milliseconds = performance.now() - began;
    const content = await viewable(item);
    const small = content && await thumbnail(content).catch(() => content);
    if (!content || item.signal.aborted) return;
    item.content = content;
    item.url = URL.createObjectURL(content);
    item.thumb.image.src = URL.createObjectURL(small);
  } catch (error) {
    item.error = error;
  }
}

async function tryAgain(item) {
  item.error = undefined;
  updateThumb(item);
  show(item);
  setStatus("Processing…");
  await detect(item);
  if (!items.includes(item)) return; // cleared meanwhile
  updateThumb(item);
  if (item === current) await show(item);
}

// A picture that the browser cannot decode, or would turn in another way, is converted by the server.
async function viewable(item) {
  if (await isShownAsRead(item)) return item.file;
  if (!isDetector()) return null;
  return postPatiently(item, WITHOUT_BOXES, "image/jpeg").then((response) => response.blob());
}

// All browsers turn a JPEG by its EXIF. Which other formats they turn differs, and the server may turn none.
async function isShownAsRead({ file, entry: { width, height, exif } }) {
  const probe = new Image();
  probe.src = URL.createObjectURL(file);
  const isDecoded = await probe.decode().then(() => true, () => false);
  URL.revokeObjectURL(probe.src);
  if (!isDecoded || !isDetector()) return isDecoded;
  if (exif && !(exif.applied && await isJpeg(file))) return false;
  return probe.naturalWidth === width && probe.naturalHeight === height;
}

const isJpeg = async (file) => String(await firstBytes(file, JPEG.length)) === String(JPEG);

async function show(item) {
  current = item;
  byId("result").hidden = !item.entry && items.length < 2; // the strip leads to the other pictures
  byId("panel").hidden = !item.entry;
  showStrip();
  if (item.error || item.entry) showProblem(item);
  if (!item.entry) {
    byId("figure").hidden = true;
    byId("caption").textContent = item.file.name;
    return;
  }
  const picture = byId("picture");
  byId("video").hidden = true;
  picture.hidden = !item.url;
  byId("figure").hidden = !item.url;
  if (item.url) {
    picture.src = item.url;
    const lost = await picture.decode().catch(() => firstBytes(item.content, 1)).then(() => null, (error) => error);
    if (item !== current) return;
    if (lost) withdraw(item, lost);
  }
  refresh();
}

// Leaves the detections of a picture whose file is gone.
function withdraw(item, error) {
  URL.revokeObjectURL(item.url);
  Object.assign(item, { url: undefined, error });
  byId("figure").hidden = true;
  updateThumb(item);
  showProblem(item);
}

function showProblem(item) {
  if (item?.error) setStatus(`${item.file.name}: ${item.error.message}`, true);
  else setStatus("");
}

// Says which of several files are missing, because only one readable picture is on display.
function showProblems(broken, count) {
  if (broken.length < 2) return broken.forEach(showProblem);
  const names = broken.slice(0, MOST_NAMES).map(({ file }) => file.name).join(", ");
  const rest = broken.length > MOST_NAMES ? ` and ${broken.length - MOST_NAMES} more` : "";
  return setStatus(`${broken.length} of ${count} files are not shown: ${names}${rest}. Select one to see why.`, true);
}

// A small copy, because many large pictures would take the memory of the browser.
async function thumbnail(file) {
  const bitmap = await createImageBitmap(file, { resizeWidth: THUMB_WIDTH, resizeQuality: "medium" });
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  bitmap.close();
  return canvas.convertToBlob({ type: "image/jpeg" });
}

function addThumb(item) {
  const button = element("button", { type: "button", className: "thumb" });
  const image = element("img", { alt: "", hidden: true });
  image.addEventListener("load", () => (image.hidden = false));
  const badge = element("span");
  button.append(image, badge);
  button.addEventListener("click", () => {
    stopFollowing();
    item.isChosen = true;
    if (item.error?.status === UNANSWERED) tryAgain(item);
    else show(item);
  });
  item.thumb = { button, image, badge };
  byId("thumbs").append(button);
  updateThumb(item);
}

function updateThumb({ thumb, file, entry, error }) {
  const count = entry ? visible(entry).length : error ? "!" : "…";
  thumb.badge.textContent = count;
  thumb.button.setAttribute("aria-label", `${file.name}: ${error ? "could not be read" : count}`);
}

function showStrip() {
  byId("strip").hidden = items.length < 2;
  for (const item of items) item.thumb.button.setAttribute("aria-current", String(item === current));
  if (items.includes(current)) current.thumb.button.scrollIntoView({ block: "nearest", inline: "nearest" });
}

const updateThumbs = () => items.forEach(updateThumb);
const hasSeveral = () => items.filter((item) => item.entry).length > 1;

function clear() {
  stopFollowing();
  clearing.abort();
  clearing = new AbortController();
  for (const { url, thumb } of items.splice(0)) {
    if (url) URL.revokeObjectURL(url);
    URL.revokeObjectURL(thumb.image.src);
    thumb.button.remove();
  }
  current = null;
  byId("result").hidden = true;
  document.body.classList.remove("working");
  setStatus("");
}

// ---------------------------------------------------------------- the result

const threshold = () => Number(byId("threshold").value);
// What was read is certain, whatever the score of its box, and `detect --read` shows it, too.
const aboveThreshold = (entry) => entry.detections.filter((each) => each.score > threshold() || each.text);

function visible(entry) {
  if (!entry.detections) return entry.classes;
  return aboveThreshold(entry).filter((each) => !hiddenClasses.has(each.class_id));
}

function refresh() {
  const { entry } = current;
  shown = visible(entry);
  chosen = null;
  groups = draw(byId("boxes"), entry.detections ? shown : [], entry, toggleChosen);
  byId("rows").replaceChildren(...shown.slice(0, MOST_ROWS).map(row));
  byId("count").textContent = summary(entry);
  byId("picture").alt = describe(shown);
  byId("caption").textContent = facts(current);
  byId("save-all").hidden = !hasSeveral();
  showFilter(entry);
  showNothing(entry);
}

function summary(entry) {
  if (!entry.detections) return "Best classes";
  const more = shown.length > MOST_ROWS ? `, the best ${MOST_ROWS} listed` : "";
  return `${shown.length || "No"} ${shown.length === 1 ? "object" : "objects"}${more}`;
}

function facts({ file, title, entry, milliseconds, rate }) {
  const { network } = entry.timing_ms;
  const parts = [title ?? file.name, `${entry.width} × ${entry.height}`];
  if (network) parts.push(`network ${network.toFixed(1)} ms`);
  if (milliseconds) parts.push(`answered in ${Math.round(milliseconds)} ms`);
  if (rate) parts.push(`${rate.toFixed(1)} frames/s`);
  parts.push(model.device);
  return parts.join(" · ");
}

function row(each, index) {
  const line = element("li");
  const made = element(each.box ? "button" : "div", { className: "row" });
  const swatch = element("span", { className: "swatch" });
  swatch.style.background = colourOf(each.class_id);
  made.append(swatch, element("span", { className: "name", textContent: each.label }));
  made.append(element("span", { className: "value", textContent: percent(each.score) }));
  if (each.box) {
    made.type = "button";
    made.setAttribute("aria-pressed", "false");
    const format = each.text ? `${each.format}, ` : "";
    made.append(element("span", { className: "where", textContent: format + place(each.box) }));
    made.addEventListener("click", () => toggleChosen(index));
  } else {
    made.append(meter(each.score));
  }
  line.append(made);
  if (each.text) line.append(said(each.text));
  return line;
}

// Escapes a character as the table of `detect` does.
function escaped(character) {
  const code = character.charCodeAt(0);
  const digits = code.toString(16);
  return { "\t": "\\t", "\r": "\\r" }[character] ?? (code < 256 ? `\\x${digits.padStart(2, "0")}` : `\\u${digits.padStart(4, "0")}`);
}

// What a code says comes from a stranger: it is shown as text, and becomes a link only to the web.
function said(text) {
  const visible = text.replace(UNSEEN, escaped);
  const isLink = /^https?:\/\/\S+$/i.test(text) && URL.canParse(text);
  const shown = isLink
    ? element("a", { href: text, target: "_blank", rel: "noopener noreferrer" })
    : element("span");
  Object.assign(shown, { className: "text", dir: "auto", textContent: visible });
  const button = element("button", { type: "button", className: "copy", textContent: "Copy", ariaLabel: `Copy ${visible}` });
  button.addEventListener("click", guarded(async () => {
    await copy(text);
    button.textContent = button.ariaLabel = "Copied";
  }));
  const made = element("div", { className: "said" });
  made.append(shown, button);
  return made;
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = element("textarea", { value: text }); // the clipboard is there only for https and localhost
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  if (!isDone) throw new Error("The browser did not allow copying.");
  return undefined;
}

function place({ left, top, right, bottom }) {
  const [x, y, width, height] = [left, top, right - left, bottom - top].map(Math.round);
  return `${width} × ${height} at ${x}, ${y}`;
}

function meter(score) {
  const made = svg("svg", { class: "meter", viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" });
  made.append(svg("rect", { width: 100, height: 1 }), svg("rect", { width: 100 * (score ?? 0), height: 1 }));
  return made;
}

function toggleChosen(index) {
  chosen = chosen === index ? null : index;
  choose(byId("boxes"), groups, chosen);
  byId("rows").querySelectorAll(".row").forEach((each, number) => {
    each.setAttribute("aria-pressed", String(number === chosen));
    if (number === chosen) each.scrollIntoView({ block: "nearest" });
  });
}

// Classes in the picture, the most frequent first; a hidden class keeps its chip.
function showFilter(entry) {
  const found = new Map();
  for (const { class_id, label } of entry.detections ? aboveThreshold(entry) : []) {
    const before = found.get(class_id) ?? { label, count: 0 };
    found.set(class_id, { label, count: before.count + 1 });
  }
  for (const id of entry.detections ? hiddenClasses : [])
    if (!found.has(id)) found.set(id, { label: model.classes[id] ?? id, count: 0 });
  const chips = [...found].sort((one, other) => other[1].count - one[1].count).map(([id, { label, count }]) => {
    const chip = element("button", { type: "button", className: "chip" });
    const swatch = element("span", { className: "swatch" });
    swatch.style.background = colourOf(id);
    chip.append(swatch, `${label} ${count}`);
    chip.dataset.id = id;
    chip.setAttribute("aria-pressed", String(!hiddenClasses.has(id)));
    chip.addEventListener("click", () => {
      if (!hiddenClasses.delete(id)) hiddenClasses.add(id);
      refresh();
      updateThumbs();
      byId("classes").querySelector(`[data-id="${id}"]`)?.focus(); // the chips were made anew
    });
    return chip;
  });
  byId("filter").hidden = !chips.length;
  byId("classes").replaceChildren(...chips);
}

// Says why nothing is shown, and offers what would show something.
function showNothing(entry) {
  byId("nothing").hidden = shown.length > 0;
  if (shown.length) return;
  const hidden = aboveThreshold(entry).length;
  const best = entry.detections.find((each) => !hiddenClasses.has(each.class_id));
  const action = byId("nothing-action");
  action.hidden = !hidden && !best;
  if (hidden) {
    say("Nothing to show", `${hidden === 1 ? "The only object is" : `All ${hidden} objects are`} of a class that you switched off.`);
    action.textContent = "Show all classes";
    action.onclick = () => {
      hiddenClasses.clear();
      refresh();
      updateThumbs();
    };
  } else if (best) {
    const lower = Math.max(lowest(), Math.floor((best.score - 0.005) * 100) / 100);
    say(`Nothing above ${threshold().toFixed(2)}`, `The best guess is ${best.label} with a score of ${Math.floor(best.score * 1000) / 1000}.`);
    action.textContent = `Lower the minimum score to ${lower.toFixed(2)}`;
    action.onclick = () => setThreshold(lower);
  } else {
    const some = model.classes.slice(0, 6).join(", ") + (model.classes.length > 6 ? ", …" : "");
    say("Nothing found", `This model knows ${some}. It sees pictures at ${model.width} × ${model.height}, so cut out small objects and try again.`);
  }
}

function say(title, text) {
  byId("nothing-title").textContent = title;
  byId("nothing-text").textContent = text;
}

function setThreshold(value) {
  byId("threshold").value = value;
  for (const kind of ["input", "change"]) byId("threshold").dispatchEvent(new Event(kind));
}

function describe(entries) {
  const counts = new Map();
  for (const { label } of entries) counts.set(label, (counts.get(label) ?? 0) + 1);
  const parts = [...counts].slice(0, 20).map(([label, count]) => (count > 1 ? `${count} ${label}` : label));
  return parts.length ? `A picture with ${parts.join(", ")}` : "A picture without detections";
}

// ---------------------------------------------------------------- camera and video

async function watch(open, name) {
  stopFollowing();
  const own = following = new AbortController();
  const { signal } = own;
  const video = byId("video");
  setStatus("Opening…");
  try {
    await open(video, signal);
  } catch (error) {
    if (signal.aborted) return; // for another camera, video or picture
    following = null;
    live.close(video);
    setStatus(error.message, true);
    return;
  }
  if (signal.aborted) return;
  latestFrame = 0;
  byId("count").setAttribute("aria-live", "off"); // every frame changes it
  setStatus("");
  startWorking();
  byId("picture").hidden = true;
  byId("stop").hidden = false;
  await live.follow(video, signal, (frame, seconds) => showFrame(frame, { path: name, seconds }, signal));
}

async function showFrame(frame, origin, signal) {
  const file = new File([frame], `${origin.path}.jpg`, { type: frame.type });
  const item = { file, title: origin.path, signal };
  const began = performance.now();
  try {
    const options = { threshold: lowest() };
    item.entry = { ...await post(item, options).then((response) => response.json()), ...origin };
  } catch (error) {
    if (signal.aborted) return;
    setStatus(error.message, true);
    const seconds = error instanceof ServerError && error.status === 503 ? error.seconds : 1;
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    return;
  }
  if (signal.aborted) return;
  item.milliseconds = performance.now() - began;
  item.rate = 1000 / (performance.now() - (latestFrame || began));
  latestFrame = performance.now();
  current = item;
  setStatus("");
  for (const id of ["result", "panel", "figure", "video"]) byId(id).hidden = false;
  refresh();
}

function stopFollowing() {
  if (!following) return;
  following.abort();
  following = null;
  byId("count").setAttribute("aria-live", "polite");
  live.close(byId("video"));
  byId("stop").hidden = true;
  byId("video").hidden = true;
}

// The last frame stays as a picture.
async function keepFrame() {
  const item = current;
  const isFrame = item?.signal && item.signal === following?.signal;
  stopFollowing();
  if (!isFrame) return item && show(item); // no frame has a result yet
  item.content = item.file;
  item.url = URL.createObjectURL(item.file);
  addThumb(item);
  item.thumb.image.src = item.url;
  items.push(item);
  await show(item);
}

// ---------------------------------------------------------------- downloads

function save(content, name) {
  const link = element("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const stem = (file) => (file.name || "picture").replace(/\.[^.]*$/, "");

function exported(item) {
  if (!item.entry) return { path: item.file.name, error: item.error?.message ?? "not processed" };
  return isDetector() ? { ...item.entry, detections: visible(item.entry) } : item.entry;
}

function saveJson(value, name) {
  save(new Blob([`${JSON.stringify(value, null, 1)}\n`], { type: "application/json" }), name);
}

async function savePicture() {
  const { file } = current; // another picture may be on display when the answer comes
  const type = file.type === "image/png" ? "png" : "jpeg";
  let settings = { threshold: threshold() };
  if (hiddenClasses.size) {
    const kept = model.classes.map((_, id) => id).filter((id) => !hiddenClasses.has(id));
    settings = kept.length ? { ...settings, classes: kept.join(",") } : WITHOUT_BOXES;
  }
  const response = await postPatiently({ file }, settings, `image/${type}`).catch((error) => {
    throw new Error(`${file.name}: ${error.message}`);
  });
  setStatus("");
  save(await response.blob(), `${stem(file)}-detected.${type === "png" ? "png" : "jpg"}`);
}

// ---------------------------------------------------------------- small things

function element(name, properties = {}) {
  return Object.assign(document.createElement(name), properties);
}

function setStatus(text, isError = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("error", isError);
}

const guarded = (action) => async (...given) => {
  try {
    await action(...given);
  } catch (error) {
    if (error.name !== "AbortError") setStatus(error.message, true);
  }
};

async function addUrl(url) {
  setStatus("Fetching…");
  const headers = { "Content-Type": "application/json" };
  const { signal } = clearing;
  const response = await request("picture", { method: "POST", headers, signal, body: JSON.stringify({ url }) });
  const content = await response.blob();
  await add([new File([content], nameIn(url) || "picture", { type: content.type })]);
}

function nameIn(url) {
  const name = new URL(url).pathname.split("/").pop();
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // a % that encodes nothing
  }
}

const filesOf = (list) => [...(list ?? [])];

byId("file").addEventListener("change", guarded(async ({ target }) => {
  const files = filesOf(target.files);
  target.value = ""; // the same picture may be chosen again
  await add(files);
}));
byId("camera").addEventListener("click", guarded(() => watch(live.openCamera, "camera")));
byId("stop").addEventListener("click", guarded(keepFrame));
byId("address").addEventListener("submit", guarded((event) => {
  event.preventDefault();
  return addUrl(byId("url").value);
}));
byId("threshold").addEventListener("input", () => {
  byId("score").textContent = threshold().toFixed(2);
  if (current?.entry) refresh();
});
byId("threshold").addEventListener("change", updateThumbs);
byId("clear").addEventListener("click", clear);
byId("save-picture").addEventListener("click", guarded(savePicture));
byId("save-json").addEventListener("click", () => saveJson(exported(current), `${stem(current.file)}.json`));
byId("save-all").addEventListener("click", () => {
  const images = items.map(exported);
  saveJson({ version: 1, engine: model.engine, model: model.model, images }, `${model.model}.json`);
});
byId("boxes").addEventListener("click", () => chosen !== null && toggleChosen(chosen));
addEventListener("keydown", (event) => event.key === "Escape" && chosen !== null && toggleChosen(chosen));
addEventListener("paste", guarded(async (event) => {
  const files = filesOf(event.clipboardData.files);
  const text = event.clipboardData.getData("text").trim();
  if (files.length) await add(files);
  else if (model?.accepts_urls && /^https?:\/\//.test(text) && event.target.id !== "url") await addUrl(text);
}));
for (const kind of ["dragenter", "dragover"])
  addEventListener(kind, (event) => {
    event.preventDefault();
    document.body.classList.add("over");
  });
for (const kind of ["dragleave", "drop"])
  addEventListener(kind, (event) => {
    event.preventDefault();
    document.body.classList.remove("over");
  });
addEventListener("drop", guarded((event) => add(filesOf(event.dataTransfer.files))));
new ResizeObserver(() => layOut(byId("boxes"))).observe(byId("frame"));

const started = start();
started.catch((error) => setStatus(error.message, true));
