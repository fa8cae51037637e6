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
  const [boxes, tags] = [svg("g"), svg("g")];
  boxes.append(...groups.toReversed()); // the best on top
  tags.append(...groups.toReversed().map(({ tag }) => tag)); // no outline crosses a label
  overlay.replaceChildren(boxes, tags);
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
  const tag = made.tag = svg("g", { class: "tag" });
  const text = svg("text", { fill: textColourOn(class_id) });
  text.textContent = `${label} ${percent(score)}`;
  tag.append(svg("rect", { class: "label", fill: colour }), text);
  made.addEventListener("pointerenter", () => {
    tag.classList.add("hovered");
    tag.parentNode.append(tag); // above the labels that it may cover
  });
  made.addEventListener("pointerleave", () => tag.classList.remove("hovered"));
  made.addEventListener("click", (event) => {
    event.stopPropagation();
    onClick();
  });
  return made;
}

// Places the labels anew, after the picture was drawn or resized. A label that would cover another
// one at every corner of its box is shown while its box is chosen or under the pointer.
export function layOut(overlay) {
  const shown = overlay.getBoundingClientRect();
  const [, , width, height] = (overlay.getAttribute("viewBox") ?? "0 0 1 1").split(" ").map(Number);
  if (!shown.width || !shown.height) return;
  const unit = width / shown.width; // of the picture, for a pixel of the screen
  const size = TEXT_PIXELS * unit;
  const taken = [];
  for (const { firstChild, tag } of [...overlay.querySelectorAll(".found")].reverse()) {
    const box = firstChild.getBBox();
    const [label, text] = tag.children;
    tag.classList.remove("crowded");
    text.setAttribute("font-size", size);
    const wide = text.getComputedTextLength() + 2 * PADDING * unit;
    const high = size * 1.4;
    const inside = (at, most) => Math.max(0, Math.min(at, most));
    const bottom = box.y + box.height;
    const places = [box.y - high, box.y, bottom, bottom - high].flatMap((y) =>
      [box.x, box.x + box.width - wide].map((x) => ({ x: inside(x, width - wide), y: inside(y, height - high) })));
    const isFree = ({ x, y }) => taken.every((each) => x + wide <= each.x || each.x + each.wide <= x || y + high <= each.y || each.y + each.high <= y);
    const free = places.find(isFree);
    if (free) taken.push({ ...free, wide, high });
    else tag.classList.add("crowded");
    const { x, y } = free ?? places[0];
    for (const [key, value] of Object.entries({ x, y, width: wide, height: high })) label.setAttribute(key, value);
    text.setAttribute("x", x + PADDING * unit);
    text.setAttribute("y", y + size * 1.05);
  }
}

export function choose(overlay, groups, index) {
  groups.forEach((each, number) => {
    for (const part of [each, each.tag]) part.classList.toggle("chosen", number === index);
  });
  overlay.classList.toggle("choosing", index !== null);
}
