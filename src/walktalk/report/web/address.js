/* What is shown, in the address: a link to it shows the same again, and so does a page that is loaded anew. */
window.Walktalk = window.Walktalk || {};
(() => {
  const WAIT = 250; // milliseconds; while something is dragged the address waits, browsers take few changes a second
  const DIGITS = 6;
  const FIRST = { axis: "iteration", metric: null, xlog: null, ylog: null, mode: "mean", smoothing: 0, range: null };
  let waiting = 0;

  /* What the address says; null where it says nothing, or only names a place on the page. */
  function given() {
    const text = location.hash.slice(1);
    return text.includes("=") ? new URLSearchParams(text) : null;
  }

  /* The state of the curves that the address asks for, as far as there is such a thing. */
  function state(data) {
    const asked = given() || new URLSearchParams();
    const one = (name, possible, usual) => (possible.includes(asked.get(name)) ? asked.get(name) : usual);
    const onOff = (name) => ({ 0: false, 1: true })[asked.get(name)] ?? null;
    const number = (name) => { const value = asked.get(name); return value && Number.isFinite(Number(value)) ? Number(value) : null; };
    const [from, to] = [number("from"), number("to")];
    return {
      axis: one("against", data.axes.map((axis) => axis.key), FIRST.axis),
      metric: one("show", data.metrics.map((metric) => metric.key), data.metrics[0].key),
      mode: one("lines", ["mean", "runs"], FIRST.mode),
      xlog: onOff("logx"), ylog: onOff("logy"),
      smoothing: Math.min(Math.max(number("smooth") || 0, 0), 0.99),
      hidden: new Set(asked.getAll("hide")),
      range: from !== null && to > from ? [from, to] : null,
    };
  }

  /* The target that it asks for; null for the usual one. */
  function target() {
    const value = Number((given() || new URLSearchParams()).get("target") || NaN);
    return Number.isFinite(value) ? value : null;
  }

  function text(curves, target) {
    const { state, data } = curves, said = new URLSearchParams();
    if (state.metric !== data.metrics[0].key) said.set("show", state.metric);
    if (state.axis !== FIRST.axis) said.set("against", state.axis);
    if (state.mode !== FIRST.mode) said.set("lines", state.mode);
    if (state.xlog !== null) said.set("logx", Number(state.xlog));
    if (state.ylog !== null) said.set("logy", Number(state.ylog));
    if (state.smoothing) said.set("smooth", state.smoothing);
    state.hidden.forEach((label) => said.append("hide", label));
    if (state.range) ["from", "to"].forEach((name, k) => said.set(name, Number(state.range[k].toPrecision(DIGITS))));
    if (target.chosen) said.set("target", Number(target.value.toPrecision(DIGITS)));
    return said.toString();
  }

  function write(curves, target) {
    clearTimeout(waiting);
    const wanted = text(curves, target);
    if (!wanted && !given()) return; // a place on the page may stay
    if (location.hash.slice(1) !== wanted) history.replaceState(null, "", wanted ? `#${wanted}` : location.pathname + location.search);
  }

  function keep(curves, target) {
    clearTimeout(waiting);
    const before = location.hash;
    waiting = setTimeout(() => { if (location.hash === before) write(curves, target); }, WAIT); // else a link was put there meanwhile
  }

  window.Walktalk.address = { state, target, write, keep };
})();
