// Draws a strip: time runs to the right; refused batches are crosses above, duplicates diamonds between, accepted records bars below.
const SVG = "http://www.w3.org/2000/svg";

/**
 * A piece of time with what happened in it.
 * @typedef {{from: number, to: number, events: any[], isWatched: boolean}} Cell
 */

/** @param {string} name @param {Record<string, string | number>} attributes */
function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

/**
 * Draws the cells of a strip, with a frame around the cell at `cursor`.
 * @param {HTMLElement} strip @param {Cell[]} cells @param {number | null} cursor
 */
export function drawStrip(strip, cells, cursor) {
  const width = Math.max(strip.clientWidth, 60), height = strip.clientHeight || 36;
  const drawing = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", focusable: "false" });
  const step = width / cells.length, lane = height * 0.28, floor = height - 2, room = height * 0.44;
  const most = Math.max(10, ...cells.map(recordsOf));
  cells.forEach((cell, index) => {
    const left = index * step, middle = left + step / 2;
    if (!cell.isWatched) drawing.append(shape("path", { class: "mark-unwatched", d: `M${left} ${floor - 2}h${step}` }));
    const bar = barHeight(recordsOf(cell), most, room);
    if (bar) drawing.append(shape("rect", { class: "mark-accepted", x: left + 0.5, y: floor - bar, width: Math.max(step - 1.5, 1.5), height: bar }));
    const size = Math.min(Math.max(step * 0.52, 3), lane * 0.46);
    if (cell.events.some((event) => event.kind === "duplicate")) drawing.append(diamond(middle, lane * 1.48, size));
    if (cell.events.some((event) => event.kind === "refused")) drawing.append(cross(middle, lane * 0.52, size));
    if (index === cursor) drawing.append(shape("rect", { class: "strip-cursor", x: left, y: 0.75, width: Math.max(step, 3), height: height - 1.5 }));
  });
  strip.replaceChildren(drawing);
}

/** Returns how many records were accepted in a cell; a batch of unknown size counts as one record. @param {Cell} cell */
function recordsOf(cell) {
  return cell.events.reduce((sum, event) => sum + (event.kind === "accepted" ? (event.records ?? 1) : 0), 0);
}

/** Returns the height of a bar: it grows with the logarithm of the records. @param {number} records @param {number} most @param {number} room */
function barHeight(records, most, room) {
  return records ? room * (0.15 + 0.85 * (Math.log(records + 1) / Math.log(most + 1))) : 0;
}

/** @param {number} x @param {number} y @param {number} size */
function diamond(x, y, size) {
  return shape("path", { class: "mark-duplicate", d: `M${x} ${y - size}l${size} ${size}-${size} ${size}-${size}-${size}z` });
}

/** @param {number} x @param {number} y @param {number} size */
function cross(x, y, size) {
  const side = size * 0.85;
  return shape("path", { class: "mark-refused", d: `M${x - side} ${y - side}L${x + side} ${y + side}M${x + side} ${y - side}L${x - side} ${y + side}` });
}
