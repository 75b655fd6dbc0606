/* Puts the page together, and takes a new state of the study in place of the old. */
(() => {
  const { dom, Curves, Target, network, partition, sortable, filterable } = window.Walktalk;
  const byId = (id) => document.getElementById(id);
  let data = null;
  let curves = null;
  let target = null;
  let replay = null;
  const known = new Map(); // by name: a table as it was shown last

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
      if (!place || place.html === html) continue; // what is folded open stays so
      const far = [...place.querySelectorAll(".scroller")].map((one) => one.scrollLeft);
      place.innerHTML = place.html = html;
      place.querySelectorAll(".scroller").forEach((one, number) => { one.scrollLeft = far[number] || 0; });
      const section = place.closest("section");
      if (section) section.hidden = html === "";
    }
  }

  function show(content) {
    data = content;
    window.Walktalk.data = data;
    for (const table of document.querySelectorAll("table.sortable")) {
      if (table.canBeSorted) continue;
      const name = table.id || table.dataset.name;
      sortable(table, name && known.get(name));
      if (table.classList.contains("filtered")) filterable(table);
      if (name) known.set(name, table);
      table.canBeSorted = true;
    }
    if (target) target.update(data);
    else target = new Target(byId("target-panel"), data);
    if (curves) curves.update(data);
    else begin();
    window.Walktalk.curves = curves;
    window.Walktalk.target = target;
    if (data.network) drawNetwork(byId("network-drawing"));
    if (data.partition) partition(byId("partition-drawing"), data.partition);
    byId("network").hidden = !data.network && !data.partition;
    showReplay();
    copying();
    window.Walktalk.paint();
  }

  /* Anew only where it has changed: what is pointed at stays so. */
  function drawNetwork(place) {
    const now = JSON.stringify(data.network);
    if (place.drawn !== now) network(place, data.network);
    place.drawn = now;
  }

  function begin() {
    const { address } = window.Walktalk;
    curves = new Curves(byId("curves"), data, (chart) => target.attach(chart));
    target.attach(curves); // the chart is drawn when this script has ended, but the address may ask for a target now
    const aim = () => { if (address.target() !== null) target.move(address.target()); };
    aim();
    curves.onset = target.onset = () => address.keep(curves, target);
    window.addEventListener("hashchange", () => { // a link was put into the address of the open page
      curves.restore(address.state(data));
      aim();
    });
    byId("curves").addEventListener("click", (event) => {
      if (event.target.id !== "copy-link") return;
      address.write(curves, target);
      copied(event.target, location.href);
    });
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
    button.onclick = () => copied(button, byId("command").textContent); // once, however often the page is updated
  }

  async function copied(button, text) {
    const usual = (button.dataset.usual ||= button.textContent); // also where it was pressed a moment ago
    try { await navigator.clipboard.writeText(text); } catch { byHand(text); }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = usual; }, 1500);
  }

  /* Where a browser gives no clipboard to a page that did not come over https: by a selection that is gone again. */
  function byHand(text) {
    const place = dom.el("pre", {}, text);
    document.body.append(place);
    selectIn(place);
    document.execCommand("copy");
    place.remove();
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
      const held = document.activeElement.closest("table th[data-column]"); // the focus is not lost with its table
      const within = held && held.closest("table");
      const table = within && (within.id ? `#${within.id}` : `[data-name="${within.dataset.name}"]`);
      if (parts.sections) showSections(parts.sections);
      if (parts.data) show(parts.data);
      if (held && !held.isConnected) document.querySelector(`table${table} th[data-column="${held.dataset.column}"] button`)?.focus();
    },
  };
  show(JSON.parse(byId("walktalk-data").textContent));
})();
