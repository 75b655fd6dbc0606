/* Puts the page together, and takes a new state of the study in place of the old. */
(() => {
  const { dom, Curves, Target, network, partition, sortable } = window.Walktalk;
  const byId = (id) => document.getElementById(id);
  let data = null;
  let curves = null;
  let target = null;
  let replay = null;

  /* Every swatch below an element gets its algorithm's colour. */
  window.Walktalk.paint = (root = document) => {
    const known = new Map(data.algorithms.map((algorithm) => [algorithm.label, algorithm]));
    for (const swatch of root.querySelectorAll(".swatch")) {
      const algorithm = known.get(swatch.dataset.algorithm);
      if (!algorithm) continue;
      swatch.style.setProperty("--colour", dom.colourOf(algorithm));
      swatch.classList.toggle("dashed", algorithm.dash.length > 0);
    }
  };

  function showSections(sections) {
    for (const [name, html] of Object.entries(sections)) {
      const place = document.querySelector(`[data-section="${name}"]`);
      if (!place) continue;
      place.innerHTML = html;
      const section = place.closest("section");
      if (section) section.hidden = html === "";
    }
  }

  function show(content) {
    data = content;
    window.Walktalk.data = data;
    const table = byId("results-table");
    if (table) sortable(table);
    if (target) target.update(data);
    else target = new Target(byId("target-panel"), data);
    if (curves) curves.update(data);
    else curves = new Curves(byId("curves"), data, (chart) => target.attach(chart));
    window.Walktalk.curves = curves;
    window.Walktalk.target = target;
    if (data.network) network(byId("network-drawing"), data.network);
    if (data.partition) partition(byId("partition-drawing"), data.partition);
    byId("network").hidden = !data.network && !data.partition;
    showReplay();
    copying();
    window.Walktalk.paint();
  }

  function showReplay() {
    const there = Boolean(data.replay && data.network && data.network.places);
    byId("replay").hidden = !there;
    if (!there) return;
    if (replay && replay.update) replay.update(data.replay);
    else replay = window.WalktalkReplay.mount(byId("replay-mount"), data.replay, { network: data.network, onTime: ({ time }) => curves.follow(time) });
  }

  function copying() {
    const button = byId("copy");
    if (!button) return;
    button.addEventListener("click", async () => {
      const text = byId("command").textContent;
      try { await navigator.clipboard.writeText(text); } catch { selectIn(byId("command")); document.execCommand("copy"); }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  function selectIn(element) {
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  }

  const themeButton = byId("theme");
  const showTheme = () => {
    themeButton.setAttribute("aria-pressed", String(document.documentElement.dataset.theme === "dark"));
    if (data) window.Walktalk.paint();
  };
  themeButton.addEventListener("click", () => window.WalktalkTheme.toggle());
  document.addEventListener("walktalk-theme", showTheme);
  showTheme();

  window.WalktalkPage = {
    update(parts) {
      if (parts.sections) showSections(parts.sections);
      if (parts.data) show(parts.data);
    },
  };
  show(JSON.parse(byId("walktalk-data").textContent));
})();
