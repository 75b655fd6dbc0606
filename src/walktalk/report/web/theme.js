/* Before anything is drawn: the theme that was chosen last, or the system's. */
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("walktalk-theme"); } catch { /* no storage for a file: the system's will do */ }
  const show = () => { root.dataset.theme = paper.matches ? "light" : chosen || (dark.matches ? "dark" : "light"); }; // paper is white
  const tell = () => document.dispatchEvent(new CustomEvent("walktalk-theme", { detail: root.dataset.theme }));
  const paper = matchMedia("print");
  dark.addEventListener("change", () => { show(); tell(); });
  paper.addEventListener("change", () => { show(); tell(); });
  show();
  window.WalktalkTheme = {
    toggle() {
      chosen = root.dataset.theme === "dark" ? "light" : "dark";
      try { localStorage.setItem("walktalk-theme", chosen); } catch { /* as above */ }
      show();
      tell();
    },
  };
})();
