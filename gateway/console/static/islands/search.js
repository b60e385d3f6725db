// A search whose hits come as they are found: asks for one short page after the other until there are enough, or somebody stops it.
import { feed } from "../feed.js";
import { opensRows, recordRow } from "../record-rows.js";

/** @param {HTMLElement} element */
export function start(element) {
  const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (element.querySelector(name));
  const body = part("tbody");
  const button = part("[data-stop]");
  const state = part("[data-state]");
  const progress = /** @type {HTMLProgressElement} */ (part("[data-progress]"));
  const trouble = part("[data-trouble]");
  const source = new URL(element.dataset.source ?? "", location.href);
  const rows = Number(element.dataset.rows);
  let wanted = rows;
  let searched = 0;
  let running = false;
  let isDone = false;
  let asked = new AbortController();

  const show = (/** @type {number} */ left) => {
    const hits = body.querySelectorAll("tr:not(.opened)").length;
    const end = isDone ? "the search has ended" : running ? "searching" : "stopped";
    state.textContent = `${hits.toLocaleString("en")} ${hits === 1 ? "record matches" : "records match"} of ${searched.toLocaleString("en")} searched; ${end}.`;
    progress.max = Math.max(1, searched + left);
    progress.value = isDone ? progress.max : searched;
    button.textContent = running ? "Stop" : "Continue";
    button.hidden = isDone;
    return hits;
  };
  const search = async () => {
    running = true;
    asked = new AbortController();
    let left = Math.max(0, progress.max - progress.value);
    button.textContent = "Stop";
    try {
      while (running) {
        const found = await feed(source.href, undefined, asked.signal);
        body.append(...found.rows.map((/** @type {any} */ row) => recordRow(row, element)));
        searched += found.searched;
        left = found.left;
        const told = [...found.problems];
        if (found.left_out) told.push(`The search leaves out ${found.left_out} partitions. Choose one partition to search it.`);
        if (told.length) {
          trouble.textContent = told.join("; ");
          trouble.hidden = false;
        }
        const isStuck = found.at !== null && found.at === source.searchParams.get("at");
        isDone = found.at === null || isStuck;
        if (found.at !== null) {
          source.searchParams.set("from", found.from);
          source.searchParams.set("at", found.at);
        }
        running = running && !isDone && show(left) < wanted;
      }
    } catch (error) {
      if (!(error instanceof DOMException)) {
        trouble.textContent = error instanceof Error ? error.message : String(error);
        trouble.hidden = false;
      }
    }
    running = false;
    show(left);
  };
  button.addEventListener("click", () => {
    if (running) {
      running = false;
      asked.abort();
      return;
    }
    wanted = body.querySelectorAll("tr:not(.opened)").length + rows;
    search();
  });
  opensRows(body);
  search();
}
