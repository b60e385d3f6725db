// A chart over time. Its element names the feed, the series and the unit; templates/parts/page.html has the macro `chart`.
import uPlot from "../vendor/uplot/uPlot.esm.js";
import { amount } from "../amounts.js";
import { feed, repeat } from "../feed.js";
import { colour } from "../theme.js";

const EVERY_MS = 2000;
/** The shortest span of the axis of times: one point alone has no span. */
const SHORTEST_S = 60;
const HEIGHT = 170;
/** The colours of verdicts, which are the same on every page. @type {Record<string, string>} */
const COLOURS = { duplicates_per_s: "--duplicate", refusals_per_s: "--refused" };
/** Steps of an axis in bytes. */
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** @param {HTMLElement} element */
export function start(element) {
  const canvas = /** @type {HTMLElement} */ (element.querySelector(".chart-canvas"));
  const now = /** @type {HTMLElement} */ (element.querySelector(".chart-now"));
  const unit = element.dataset.unit ?? "count";
  const names = (element.dataset.series ?? "").split(" ");
  const labels = (element.dataset.labels ?? "").split("|");
  /** @type {number[]} */ const times = [];
  /** @type {(number | null)[][]} */ const columns = names.map(() => []);
  /** @type {uPlot | null} */ let plot = null;

  const data = () => [times.map((time) => time / 1000), ...columns];
  const draw = () => {
    plot?.destroy();
    canvas.replaceChildren();
    plot = new uPlot(options(names, labels, unit, canvas.clientWidth), data(), canvas);
  };

  const update = async () => {
    const separator = element.dataset.source?.includes("?") ? "&" : "?";
    try {
      const found = await feed(`${element.dataset.source}${separator}range=1h`);
      times.splice(0, times.length, ...found.times);
      names.forEach((name, index) => columns[index].splice(0, columns[index].length, ...found.series[name]));
      const newest = columns.map((column) => column.findLast((value) => value !== null));
      now.textContent = newest.every((value) => value === undefined)
        ? (found.error ?? "no figures yet")
        : newest.map((value, index) => (labels.length > 1 ? `${labels[index]} ` : "") + amount(value, unit)).join(" · ");
      canvas.setAttribute("aria-label", `Chart of ${element.dataset.title}, now ${now.textContent}`);
      if (plot) plot.setData(data()); else draw();
      element.dataset.points = String(times.length);
    } catch (error) {
      now.textContent = error instanceof Error ? error.message : String(error);
    }
  };

  new ResizeObserver(() => plot?.setSize({ width: canvas.clientWidth, height: height(labels) })).observe(canvas);
  document.addEventListener("theme", draw);
  repeat(update, EVERY_MS);
}

/** @param {string[]} labels */
function height(labels) {
  return labels.length > 1 ? HEIGHT - 24 : HEIGHT;
}

/** Returns times of day for the axis, with seconds when the times are close together. @param {number[]} ticks */
function clock(ticks) {
  const seconds = ticks.length > 1 && ticks[1] - ticks[0] < 60;
  return ticks.map((tick) => new Date(tick * 1000).toTimeString().slice(0, seconds ? 8 : 5));
}

/** @param {string[]} names @param {string[]} labels @param {string} unit @param {number} width */
function options(names, labels, unit, width) {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, space: 80 };
  return {
    width, height: height(labels),
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    legend: { show: labels.length > 1, live: false },
    padding: [8, 26, 0, 0],
    scales: { x: { range: (/** @type {any} */ _, /** @type {number} */ first, /** @type {number} */ last) => [Math.min(first, last - SHORTEST_S), last] }, y: { range: (/** @type {any} */ _, /** @type {number} */ lowest, /** @type {number} */ highest) => [0, Math.max(highest * 1.1, unit === "ms" ? 1 : 0.5)] } },
    axes: [
      { ...axis, size: 26, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => clock(ticks) },
      { ...axis, size: 66, space: 34, incrs: unit === "bytes" ? POWERS : undefined, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map((tick) => amount(tick, unit)) },
    ],
    series: [{}, ...labels.map((label, index) => ({
      label, stroke: colour(COLOURS[names[index]] ?? `--series-${index + 1}`), width: 1.6, spanGaps: false,
      fill: labels.length === 1 ? `${colour("--series-1")}22` : undefined, points: { show: false },
    }))],
  };
}
