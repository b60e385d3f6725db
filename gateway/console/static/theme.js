// The button that changes the colours: as the system, light, dark.
const KEY = "seqgate-theme";
const ORDER = ["system", "light", "dark"];
const WORDS = { system: "as the system", light: "light", dark: "dark" };

export function startTheme() {
  const button = document.getElementById("theme-button");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const chosen = localStorage.getItem(KEY) ?? "system";
    const dark = chosen === "dark" || (chosen === "system" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button?.setAttribute("aria-label", `Colours: ${WORDS[chosen] ?? WORDS.system}`);
    button?.setAttribute("title", `Colours: ${WORDS[chosen] ?? WORDS.system}`);
    document.dispatchEvent(new CustomEvent("theme"));
  };
  button?.addEventListener("click", () => {
    const now = ORDER.indexOf(localStorage.getItem(KEY) ?? "system");
    localStorage.setItem(KEY, ORDER[(now + 1) % ORDER.length]);
    show();
  });
  system.addEventListener("change", show);
  show();
}

/** Returns the value of a colour of theme.css. @param {string} name */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
