// The colours of classes, as in engine/vision/colours.py.

const GOLDEN_RATIO = 0.6180339887498949;

function rgb(classId) {
  const hue = (classId * GOLDEN_RATIO + 0.33) % 1;
  const [saturation, value] = [0.78, 0.96];
  const sector = Math.floor(hue * 6);
  const rest = hue * 6 - sector;
  const low = value * (1 - saturation);
  const falling = value * (1 - saturation * rest);
  const rising = value * (1 - saturation * (1 - rest));
  const parts = [
    [value, rising, low], [falling, value, low], [low, value, rising],
    [low, falling, value], [rising, low, value], [value, low, falling],
  ][sector % 6];
  return parts.map((part) => Math.round(part * 255));
}

export const colourOf = (classId) => `rgb(${rgb(classId).join(", ")})`;

export function textColourOn(classId) {
  const [red, green, blue] = rgb(classId);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000" : "#fff";
}
