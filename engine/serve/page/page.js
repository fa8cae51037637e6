// Sends a picture to this server and shows the result. Nothing is fetched from other servers.

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

let picture = null; // the file on display
let latestRequest = 0; // responses to older requests are dropped
let model = null;

async function start() {
  const response = await fetch("model");
  model = await response.json();
  const verb = model.task === "detector" ? "Detects" : "Recognizes";
  const some = model.classes.slice(0, 5).join(", ");
  const more = model.classes.length > 5 ? " and others" : "";
  byId("model").textContent = `${verb} ${model.classes.length} classes: ${some}${more}.`;
  byId("threshold").value = model.threshold;
  byId("score").textContent = model.threshold;
  byId("threshold-row").hidden = model.task !== "detector";
  byId("where").hidden = model.task !== "detector";
}

async function upload(file) {
  picture = file;
  const number = ++latestRequest;
  setStatus("Processing…");
  const path = model.task === "detector" ? `detect?threshold=${byId("threshold").value}` : "classify";
  const body = new FormData();
  body.append("image", file);
  try {
    const response = await fetch(path, { method: "POST", body });
    const found = await response.json();
    if (number !== latestRequest) return;
    if (response.ok) await show(file, found);
    else setStatus(found.error, true);
  } catch {
    if (number === latestRequest) setStatus("The server does not respond.", true);
  }
}

async function show(file, found) {
  const entries = found.detections ?? found.classes;
  const count = entries.length;
  const what = found.detections ? (count === 1 ? "object" : "objects") : "best classes";
  await display(file);
  setStatus("");
  byId("caption").textContent = `${count} ${what} in ${file.name || "the picture"}`;
  byId("picture").alt = describe(entries);
  byId("boxes").setAttribute("viewBox", `0 0 ${found.width} ${found.height}`);
  byId("boxes").setAttribute("preserveAspectRatio", "none");
  const shapes = (found.detections ?? []).map((each) => rectangle(each.box, each.class_id));
  const size = (found.width + found.height) / 60;
  const names = (found.detections ?? []).map((each) => caption(each, size));
  byId("boxes").replaceChildren(...shapes.toReversed(), ...names.toReversed()); // the best score on top
  byId("rows").replaceChildren(...entries.map((each, index) => row(each, shapes[index])));
  byId("result").hidden = false;
}

async function display(file) {
  URL.revokeObjectURL(byId("picture").src);
  byId("picture").src = URL.createObjectURL(file);
  // A format that the browser cannot decode still gets the table.
  const isDecodable = await byId("picture").decode().then(() => true, () => false);
  byId("frame").hidden = !isDecodable;
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
  return parts.length ? `A picture with ${parts.join(", ")}` : "A picture without detections";
}

function setStatus(text, isError = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("error", isError);
  if (isError) byId("result").hidden = true;
}

function uploadFirst(files) {
  const file = [...files].find((each) => each.type.startsWith("image/")) ?? files[0];
  if (file) upload(file);
}

byId("file").addEventListener("change", () => uploadFirst(byId("file").files));
byId("form").addEventListener("submit", (event) => event.preventDefault());
byId("threshold").addEventListener("input", () => (byId("score").textContent = byId("threshold").value));
byId("threshold").addEventListener("change", () => picture && upload(picture));
addEventListener("paste", (event) => uploadFirst(event.clipboardData.files));
for (const kind of ["dragenter", "dragover"])
  addEventListener(kind, (event) => {
    event.preventDefault();
    byId("drop").classList.add("over");
  });
for (const kind of ["dragleave", "drop"])
  addEventListener(kind, (event) => {
    event.preventDefault();
    byId("drop").classList.remove("over");
  });
addEventListener("drop", (event) => uploadFirst(event.dataTransfer.files));

start().catch(() => setStatus("The server does not respond.", true));
