/* Numbers as people read them: few digits, units that keep them short. The same units as in the figures. */
window.Walktalk = window.Walktalk || {};
(() => {
  const TIMES = [["h", 3600, 48], ["min", 60, 240], ["s", 1, 1], ["ms", 1e-3, 1]]; // name, size, from how many on
  const DATA = [["TB", 8e12, 1], ["GB", 8e9, 1], ["MB", 8e6, 1], ["kB", 8e3, 1], ["B", 8, 1]];

  function unitOf(axis, largest) {
    if (axis === "iteration") return { name: "", size: 1 };
    const units = axis === "time" ? TIMES : DATA;
    const [name, size] = units.find(([, size, from]) => largest >= from * size) || units[units.length - 1];
    return { name, size };
  }

  function plain(value, digits = 3) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e7 || size < 1e-4) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
    const shown = size >= 1000 ? Math.round(value) : Number(value.toPrecision(digits));
    return shown.toLocaleString("en-US", { maximumFractionDigits: 10 });
  }

  /* At an axis that has room for seven letters. */
  const brief = (value) => (Math.abs(value) >= 1e6 ? value.toExponential(2).replace(/\.?0*e\+?/, "e") : plain(value, 4));

  /* A mean, or its spread, with the mean's three figures in all; iterations are whole. As in the table of results. */
  function alike(mean, unit, shown = mean) {
    const whole = Math.round(Math.abs(mean / unit.size)).toString().length;
    const digits = unit.name ? Math.max(0, 3 - whole) : 0;
    return (shown / unit.size).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  /* A place on an axis, with its unit; with a spread, both in the mean's unit. */
  function onAxis(axis, value, spread) {
    if (value === null || !Number.isFinite(value)) return "–";
    const unit = unitOf(axis, Math.abs(value));
    if (spread) return `${alike(value, unit)} ± ${alike(value, unit, spread)}${unit.name ? "\u00a0" + unit.name : ""}`;
    const shown = axis === "iteration" ? Math.round(value).toLocaleString("en-US") : plain(value / unit.size);
    return `${shown}${unit.name ? "\u00a0" + unit.name : ""}`;
  }

  function ofMetric(metric, value, spread) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const unit = metric.unit ? "\u00a0" + metric.unit : "";
    const digits = metric.unit === "%" ? (value > 99 ? 4 : 3) : 3;
    return plain(value, digits) + (spread ? ` ± ${plain(spread, 2)}` : "") + unit;
  }

  window.Walktalk.format = { unitOf, plain, brief, onAxis, ofMetric };
})();
