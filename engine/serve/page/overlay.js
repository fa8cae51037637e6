// Boxes with labels on a picture or a video.

import { colourOf, textColourOn } from "./colours.js";

const SVG = "http://www.w3.org/2000/svg";
const TEXT_PIXELS = 13; // on the screen, whatever the size of the picture
const PADDING = 4;

export const percent = (score) => `${Math.round((score ?? 0) * 100)}%`;

export function svg(name, attributes = {}) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Draws `detections`, best first, and calls `onChoose` with the index of a clicked one.
export function draw(overlay, detections, { width, height }, onChoose) {
  overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
  overlay.setAttribute("preserveAspectRatio", "none");
  const groups = detections.map((each, index) => group(each, () => onChoose(index)));
  overlay.replaceChildren(...groups.toReversed()); // the best on top
  overlay.classList.remove("choosing");
  layOut(overlay);
  return groups;
}

function group({ box, class_id, label, score }, onClick) {
  const colour = colourOf(class_id);
  const made = svg("g", { class: "found", color: colour });
  made.append(svg("rect", {
    class: "box", x: box.left, y: box.top, stroke: colour,
    width: Math.max(0, box.right - box.left), height: Math.max(0, box.bottom - box.top),
  }));
  const tag = svg("g", { class: "tag" });
  const text = svg("text", { fill: textColourOn(class_id) });
  text.textContent = `${label} ${percent(score)}`;
  tag.append(svg("rect", { class: "label", fill: colour }), text);
  made.append(tag);
  made.addEventListener("click", (event) => {
    event.stopPropagation();
    onClick();
  });
  return made;
}

// Places the labels anew, after the picture was drawn or resized. A label that would cover another
// is shown when its box is chosen.
export function layOut(overlay) {
  const shown = overlay.getBoundingClientRect();
  const [, , width, height] = (overlay.getAttribute("viewBox") ?? "0 0 1 1").split(" ").map(Number);
  if (!shown.width || !shown.height) return;
  const unit = width / shown.width; // of the picture, for a pixel of the screen
  const size = TEXT_PIXELS * unit;
  const taken = [];
  for (const made of [...overlay.children].reverse()) {
    const box = made.querySelector(".box").getBBox();
    const [label, text] = made.querySelector(".tag").children;
    made.classList.remove("crowded");
    text.setAttribute("font-size", size);
    const wide = text.getComputedTextLength() + 2 * PADDING * unit;
    const high = size * 1.4;
    const x = Math.max(0, Math.min(box.x, width - wide));
    const places = [box.y - high, box.y, box.y + box.height].map((y) => Math.max(0, Math.min(y, height - high)));
    const isFree = (y) => taken.every((each) => x + wide <= each.x || each.x + each.wide <= x || y + high <= each.y || each.y + each.high <= y);
    const y = places.find(isFree);
    if (y === undefined) made.classList.add("crowded");
    else taken.push({ x, y, wide, high });
    const top = y ?? places[0];
    for (const [key, value] of Object.entries({ x, y: top, width: wide, height: high })) label.setAttribute(key, value);
    text.setAttribute("x", x + PADDING * unit);
    text.setAttribute("y", top + size * 1.05);
  }
}

export function choose(overlay, groups, index) {
  groups.forEach((each, number) => each.classList.toggle("chosen", number === index));
  overlay.classList.toggle("choosing", index !== null);
}
