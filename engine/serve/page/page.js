// Sends a picture to this server and shows what it finds. Nothing is fetched from anywhere else.

const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

let picture = null; // the file that is shown
let asked = 0; // the newest request: answers to older ones are dropped
let model = null;

async function start() {
  const answer = await fetch("model");
  model = await answer.json();
  const kind = model.task === "detector" ? "Finds" : "Knows";
  const some = model.classes.slice(0, 5).join(", ");
  const more = model.classes.length > 5 ? " and others" : "";
  at("model").textContent = `${kind} ${model.classes.length} classes: ${some}${more}.`;
  at("threshold").value = model.threshold;
  at("score").textContent = model.threshold;
  at("least").hidden = model.task !== "detector";
  at("where").hidden = model.task !== "detector";
}

async function look(file) {
  picture = file;
  const number = ++asked;
  say("Looking…");
  const query = model.task === "detector" ? `detect?threshold=${at("threshold").value}` : "classify";
  const body = new FormData();
  body.append("image", file);
  try {
    const answer = await fetch(query, { method: "POST", body });
    const found = await answer.json();
    if (number !== asked) return;
    if (answer.ok) await show(file, found);
    else say(found.error, true);
  } catch {
    if (number === asked) say("The server does not answer.", true);
  }
}

async function show(file, found) {
  const entries = found.detections ?? found.classes;
  const count = entries.length;
  const what = found.detections ? (count === 1 ? "object" : "objects") : "best classes";
  await display(file);
  say("");
  at("caption").textContent = `${count} ${what} in ${file.name || "the picture"}`;
  at("picture").alt = describe(entries);
  at("boxes").setAttribute("viewBox", `0 0 ${found.width} ${found.height}`);
  at("boxes").setAttribute("preserveAspectRatio", "none");
  const shapes = (found.detections ?? []).map((each) => rectangle(each.box, each.class_id));
  const size = (found.width + found.height) / 60;
  const names = (found.detections ?? []).map((each) => caption(each, size));
  at("boxes").replaceChildren(...shapes.toReversed(), ...names.toReversed()); // the best on top
  at("rows").replaceChildren(...entries.map((each, place) => row(each, shapes[place])));
  at("result").hidden = false;
}

async function display(file) {
  URL.revokeObjectURL(at("picture").src);
  at("picture").src = URL.createObjectURL(file);
  // Of a format that the browser does not know there is the list alone.
  const isKnown = await at("picture").decode().then(() => true, () => false);
  at("frame").hidden = !isKnown;
}

function rectangle(box, classId) {
  const shape = document.createElementNS(SVG, "rect");
  shape.setAttribute("x", box.left);
  shape.setAttribute("y", box.top);
  shape.setAttribute("width", Math.max(0, box.right - box.left));
  shape.setAttribute("height", Math.max(0, box.bottom - box.top));
  shape.setAttribute("stroke", colour(classId));
  shape.setAttribute("color", colour(classId));
  return shape;
}

function caption({ box, label }, size) {
  const text = document.createElementNS(SVG, "text");
  text.setAttribute("x", Math.max(box.left, 0));
  text.setAttribute("y", Math.max(box.top - size / 3, size));
  text.setAttribute("font-size", size);
  text.textContent = label;
  return text;
}

function row(entry, shape) {
  const line = document.createElement("tr");
  const where = entry.box
    ? [entry.box.left, entry.box.top, entry.box.right - entry.box.left, entry.box.bottom - entry.box.top]
    : [];
  for (const text of [entry.label, (entry.score ?? 0).toFixed(3), where.map(Math.round).join(", ")])
    line.append(Object.assign(document.createElement("td"), { textContent: text }));
  if (!shape) {
    line.lastChild.remove();
    return line;
  }
  const swatch = document.createElementNS(SVG, "svg");
  swatch.setAttribute("class", "swatch");
  swatch.setAttribute("aria-hidden", "true");
  swatch.append(document.createElementNS(SVG, "rect"));
  swatch.firstChild.setAttribute("fill", shape.getAttribute("color"));
  line.firstChild.prepend(swatch);
  line.tabIndex = 0;
  for (const [kind, isOn] of [["focus", true], ["blur", false], ["mouseenter", true], ["mouseleave", false]])
    line.addEventListener(kind, () => shape.classList.toggle("chosen", isOn));
  return line;
}

function colour(classId) {
  return `hsl(${(classId * 137.5) % 360} 90% 45%)`;
}

function describe(entries) {
  const counts = new Map();
  for (const { label } of entries) counts.set(label, (counts.get(label) ?? 0) + 1);
  const parts = [...counts].map(([label, count]) => (count > 1 ? `${count} ${label}` : label));
  return parts.length ? `A picture with ${parts.join(", ")}` : "A picture in which nothing was found";
}

function say(text, isError = false) {
  at("status").textContent = text;
  at("status").classList.toggle("error", isError);
  if (isError) at("result").hidden = true;
}

function take(files) {
  const file = [...files].find((each) => each.type.startsWith("image/")) ?? files[0];
  if (file) look(file);
}

at("file").addEventListener("change", () => take(at("file").files));
at("form").addEventListener("submit", (event) => event.preventDefault());
at("threshold").addEventListener("input", () => (at("score").textContent = at("threshold").value));
at("threshold").addEventListener("change", () => picture && look(picture));
addEventListener("paste", (event) => take(event.clipboardData.files));
for (const kind of ["dragenter", "dragover"])
  addEventListener(kind, (event) => {
    event.preventDefault();
    at("drop").classList.add("over");
  });
for (const kind of ["dragleave", "drop"])
  addEventListener(kind, (event) => {
    event.preventDefault();
    at("drop").classList.remove("over");
  });
addEventListener("drop", (event) => take(event.dataTransfer.files));

start().catch(() => say("The server does not answer.", true));
