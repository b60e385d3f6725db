// Starts what every page has, and the islands that a page names: <div data-island="chart"> runs islands/chart.js.
import { startKeys } from "./keys.js";
import { startMenu } from "./menu.js";
import { startTheme } from "./theme.js";
import { showTimes } from "./times.js";

startTheme();
startMenu();
startKeys();
showTimes(document);
startIslands(document);

/**
 * Runs the module of each island inside an element. A module exports `start(element)`. The attribute
 * data-started is empty until that has run.
 * @param {ParentNode} parent
 */
export function startIslands(parent) {
  for (const element of parent.querySelectorAll("[data-island]:not([data-started])")) {
    element.setAttribute("data-started", "");
    const name = element.getAttribute("data-island") ?? "";
    if (!/^[a-z-]+$/.test(name)) continue;
    import(`./islands/${name}.js`)
      .then((module) => module.start(element))
      .catch((error) => console.error(`The island ${name} did not start.`, error))
      .finally(() => element.setAttribute("data-started", "yes"));
  }
}
