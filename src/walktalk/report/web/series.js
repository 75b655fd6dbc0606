/* Arithmetic on curves: values between two evaluations, common places, where a target is reached. */
window.Walktalk = window.Walktalk || {};
(() => {
  /* The value at a place by straight line; null outside, or beside a value that is none. */
  function at(xs, ys, x) {
    let low = 0;
    let high = xs.length - 1;
    if (high < 0 || x < xs[0] || x > xs[high]) return null;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= x) low = middle;
      else high = middle;
    }
    if (xs[low] === x || high === low) return ys[low];
    if (xs[high] === x) return ys[high];
    if (ys[low] === null || ys[high] === null) return null;
    return ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
  }

  /* Every place of any curve, once and in order; thinned where they are more than a screen has columns. */
  function places(lists, most = 3000) {
    const all = Float64Array.from(lists.flat()).sort();
    const once = all.filter((x, k) => k === 0 || x !== all[k - 1]);
    if (once.length <= most) return Array.from(once);
    return Array.from({ length: most }, (_, k) => once[Math.round((k * (once.length - 1)) / (most - 1))]);
  }

  const spread = (xs, ys, grid) => grid.map((x) => at(xs, ys, x));

  /* Where a run first comes to the target, by straight line between evaluations; null if never. As in summary.json. */
  function reaches(xs, ys, target, less) {
    const there = (y) => y !== null && (less ? y <= target : y >= target);
    const k = ys.findIndex(there);
    if (k < 0) return null;
    const before = k > 0 ? ys[k - 1] : null;
    if (before === null || before === ys[k]) return xs[k];
    return xs[k - 1] + ((before - target) / (before - ys[k])) * (xs[k] - xs[k - 1]);
  }

  /* A moving mean as TensorBoard has it: `weight` of what was before, counted so that the beginning is not drawn to 0. */
  function smooth(ys, weight) {
    let sum = 0, share = 0;
    return ys.map((y) => {
      if (y === null) return null;
      sum = weight * sum + (1 - weight) * y;
      share = weight * share + (1 - weight);
      return sum / share;
    });
  }

  /* Mean and sample σ. */
  function meanOf(values) {
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    if (values.length < 2) return { mean, std: null };
    const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    return { mean, std: Math.sqrt(squares / (values.length - 1)) };
  }

  window.Walktalk.series = { at, places, spread, reaches, smooth, meanOf };
})();
