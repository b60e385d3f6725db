// The newest lines of the logs of all gateways, live: filter by level and text, pause, folded tracebacks.
import { made } from "../elements.js";
import { feed, repeat } from "../feed.js";
import { localTime } from "../times.js";

const EVERY_MS = 1000;
const MOST_LINES = 2000;
const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
const BADGES = { WARNING: "warn", ERROR: "bad", CRITICAL: "bad" };

/** @typedef {{ node: number, number: number, time_ms: number, level: string, logger: string, message: string, error: string | null }} Line */

/** @param {HTMLElement} element */
export function start(element) {
  const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (element.querySelector(name));
  const level = /** @type {HTMLSelectElement} */ (part("[name=level]"));
  const text = /** @type {HTMLInputElement} */ (part("[name=filter]"));
  const list = part("[data-lines]");
  const pause = part("[data-pause]");
  const trouble = part("[data-trouble]");
  /** @type {Record<string, string>} */ let seen = {};
  let isPaused = false;

  const filter = () => {
    const lowest = LEVELS.indexOf(level.value);
    const wanted = text.value.toLowerCase();
    let shown = 0;
    for (const item of /** @type {Iterable<HTMLElement>} */ (list.children)) {
      item.hidden = LEVELS.indexOf(item.dataset.level ?? "") < lowest || !(item.dataset.text ?? "").includes(wanted);
      if (!item.hidden) shown += 1;
    }
    part("[data-count]").textContent = `${shown} of ${list.children.length} lines`;
    part("[data-none]").hidden = shown > 0 || list.children.length === 0;
    const query = new URLSearchParams({ level: level.value, ...(text.value ? { filter: text.value } : {}) });
    history.replaceState(null, "", `${location.pathname}?${query}`);
  };
  const update = async () => {
    if (isPaused) return;
    try {
      const found = await feed(element.dataset.source ?? "", seen);
      seen = { after: found.after, started: found.started };
      trouble.textContent = found.silent.join("; ");
      trouble.hidden = !found.silent.length;
      for (const node of found.restarted) list.prepend(restart(found.is_several ? ` on node ${node}` : ""));
      list.prepend(...found.lines.map((/** @type {Line} */ line) => row(line, found.is_several)).reverse());
      if (!found.lines.length && !found.restarted.length) return;
      while (list.children.length > MOST_LINES) list.lastElementChild?.remove();
      filter();
    } catch (error) {
      trouble.textContent = error instanceof Error ? error.message : String(error);
      trouble.hidden = false;
    }
  };

  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Continue" : "Pause";
    pause.setAttribute("aria-pressed", String(isPaused));
    if (!isPaused) update();
  });
  level.addEventListener("change", filter);
  text.addEventListener("input", filter);
  element.querySelector("form")?.addEventListener("submit", (event) => event.preventDefault());
  repeat(update, EVERY_MS);
}

/** Returns the element of a line; of several gateways it names its own. @param {Line} line @param {boolean} isSeveral */
function row(line, isSeveral) {
  const item = document.createElement("li");
  item.dataset.level = LEVELS.includes(line.level) ? line.level : "INFO";
  const where = isSeveral ? `node ${line.node} ` : "";
  item.dataset.text = `${where}${line.logger} ${line.message} ${line.error ?? ""}`.toLowerCase();
  const at = made("time", "", localTime(new Date(line.time_ms)));
  at.setAttribute("datetime", new Date(line.time_ms).toISOString());
  item.append(at, made("span", `badge ${BADGES[line.level] ?? ""}`.trim(), line.level), made("span", "muted", where + line.logger));
  item.append(made("span", "message", line.message));
  if (line.error) {
    const summary = made("summary", "", line.error.split("\n").at(-1) || "Traceback");
    item.append(made("details", "", summary, made("pre", "", line.error)));
  }
  return item;
}

/** @param {string} where */
function restart(where) {
  const item = document.createElement("li");
  item.dataset.level = "CRITICAL";
  item.dataset.text = "";
  item.append(made("strong", "", `The gateway${where} has started again.`));
  return item;
}
