/* Who is better, and how surely: the rule of studies/results/summary.py for costs, whose numbers come with the page. */
window.Walktalk = window.Walktalk || {};
(() => {
  const { meanOf } = window.Walktalk.series;

  /* log Γ(x) for x > 0 (Lanczos, g = 7). */
  function logGamma(x) {
    const c = [0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
      12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
    const t = x + 6.5;
    const sum = c.slice(1).reduce((total, value, k) => total + value / (x + k), c[0]);
    return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
  }

  /* The regularized incomplete beta function, by its continued fraction (modified Lentz). */
  function beta(x, a, b) {
    if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - beta(1 - x, b, a);
    let c = 1, d = 1 / (1 - ((a + b) * x) / (a + 1)), fraction = d;
    for (let m = 1; m < 500; m += 1) {
      const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
      const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
      let step = 1;
      for (const term of [even, odd]) {
        d = 1 / (1 + term * d);
        c = 1 + term / c;
        step = d * c;
        fraction *= step;
      }
      if (Math.abs(step - 1) < 1e-13) break;
    }
    return (Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log(1 - x)) / a) * fraction;
  }

  /* Student's distribution function. */
  function student(freedom, t) {
    const tail = beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2;
    return t > 0 ? 1 - tail : tail;
  }

  /* The chance that the first costs less; each a value a run. Null: one run tells nothing. */
  function chance(best, next, { known, spread }) {
    if (Math.min(best.length, next.length) < 2) return null;
    const positive = Math.min(...best, ...next) > 0; // costs differ by factors, so their logarithms are compared
    const prior = positive ? spread : spread * Math.max(meanOf([...best, ...next].map(Math.abs)).mean, 1e-300);
    const [a, b] = [best, next].map((values) => {
      const { mean, std } = meanOf(positive ? values.map(Math.log) : values);
      const freedom = known + values.length - 1;
      return { mean, std, freedom, share: (known * prior ** 2 + (values.length - 1) * std ** 2) / freedom / values.length };
    });
    const gap = b.mean - a.mean;
    if (a.std === 0 && b.std === 0) return gap > 0 ? 1 : 0.5; // nothing in them is random
    const freedom = (a.share + b.share) ** 2 / (a.share ** 2 / a.freedom + b.share ** 2 / b.freedom);
    return student(freedom, gap / Math.sqrt(a.share + b.share));
  }

  /* Chances that are read together, corrected for how many they are (Holm). */
  function together(chances) {
    const order = chances.map((_, k) => k).sort((a, b) => chances[b] - chances[a]);
    let worst = 0;
    const found = [];
    order.forEach((k, rank) => {
      worst = Math.max(worst, Math.min(1, (chances.length - rank) * 2 * (1 - chances[k])));
      found[k] = 1 - worst / 2;
    });
    return found;
  }

  /* `once`, `clear`, `probable` or `close`: how sure it is that the first of each pair costs less. `also`: chances of
     what is read beside them. */
  function verdicts(pairs, rule) {
    const each = pairs.map(([best, next]) => chance(best, next, rule));
    const corrected = together([...each.filter((one) => one !== null), ...(rule.also || [])]);
    let at = 0;
    return each.map((one) => {
      if (one === null) return "once";
      const sure = corrected[at];
      at += 1;
      return sure >= rule.clear ? "clear" : sure >= rule.probable ? "probable" : "close";
    });
  }

  window.Walktalk.deciding = { student, chance, together, verdicts };
})();
