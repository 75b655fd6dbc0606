/* A cluster's page: all nodes or only those that have to be looked at; and standing still, for whoever reads or copies. */
(() => {
  const { el, choice, toggle } = window.Walktalk.dom;
  const place = document.getElementById("nodes-controls");
  if (!place) return;
  let shown = "all";
  const said = el("p", { class: "note", role: "status" });
  const which = choice("Show", "nodes", [["all", "All nodes"], ["attention", "To look at"]], shown, (value) => { shown = value; apply(); });
  const hold = toggle("Hold still", "hold", false, (on) => { hold.show(on); window.WalktalkLive.hold(on); });
  place.append(which, el("div", { class: "buttons" }, hold), said);

  function apply() {
    const rows = [...document.querySelectorAll('table[data-name="nodes"] tbody tr')];
    for (const row of rows) row.hidden = shown === "attention" && row.dataset.attention !== "yes";
    const left = rows.filter((row) => !row.hidden).length;
    said.textContent = left === rows.length ? "" : left ? `${left} of ${rows.length} nodes` : `None of ${rows.length} nodes has to be looked at.`;
  }

  const { update } = window.WalktalkPage;
  window.WalktalkPage.update = (parts) => {
    update(parts);
    apply();
  };
})();
