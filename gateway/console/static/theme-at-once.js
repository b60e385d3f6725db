// Sets the colours before the page is drawn, so that it does not flash.
(function () {
  const chosen = localStorage.getItem("seqgate-theme");
  const dark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
