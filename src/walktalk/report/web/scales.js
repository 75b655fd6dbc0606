/* Scales: linear, logarithmic, and for percentages one that opens up toward 100, where accuracies end. */
window.Walktalk = window.Walktalk || {};
(() => {
  const { plain } = window.Walktalk.format;
  const GAP = 0.05; // percent short of 100 that counts as 100: a logarithm has no place for it

  const LINEAR = { fwd: (v) => v, bwd: (v) => v, ticks: evenTicks };
  const LOG = { fwd: (v) => Math.log10(Math.max(v, 1e-300)), bwd: (v) => 10 ** v, ticks: logTicks };
  const NEAR_100 = { fwd: (v) => -Math.log10(Math.max(100 - v, GAP)), bwd: (v) => 100 - 10 ** -v, ticks: nearTicks };

  function evenTicks(low, high, most, least = 0) { // `least`: the smallest step, 1 where only whole numbers mean something
    if (!(high > low)) return [];
    const rough = Math.max((high - low) / Math.max(most, 2), least);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5, 10].find((multiple) => multiple * power >= rough) || 10);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
    return found;
  }

  function logTicks(low, high, most) {
    if (!(low > 0 && high > low)) return []; // from 0 on there would be no end to them
    const powers = Math.log10(high / low);
    const every = Math.max(1, Math.ceil(powers / Math.max(most, 2))); // powers of ten, where they would stand on each other
    const multiples = powers < 0.6 ? [1, 1.5, 2, 3, 4, 5, 7] : powers < 2 ? [1, 2, 5] : powers < 4 ? [1, 3] : [1];
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      if (power % every) continue;
      for (const multiple of multiples) {
        const at = Number((multiple * 10 ** power).toPrecision(6));
        if (at >= low && at <= high) found.push(at);
      }
    }
    return found;
  }

  function nearTicks(low, high) {
    const all = [0, 20, 40, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.8, 99.9];
    return all.filter((at) => at >= low && at <= high);
  }

  /* Which scale "logarithmic" means for this metric. */
  const steep = (metric) => (metric.unit === "%" ? NEAR_100 : LOG);

  /* Limits around everything, with some room, in the scale's own measure. */
  function around(scale, low, high) {
    let [a, b] = [scale.fwd(low), scale.fwd(high)];
    const room = 0.05 * (b - a) || 0.05 * Math.abs(b) || 0.5;
    return [scale.bwd(a - room), scale.bwd(b + room)];
  }

  window.Walktalk.scales = { LINEAR, LOG, steep, around, plain };
})();
