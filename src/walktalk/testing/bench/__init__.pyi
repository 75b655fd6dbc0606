from .suites import BENCHMARKS as BENCHMARKS
from .suites import Benchmark as Benchmark
from .suites import BenchResult as BenchResult
from .suites import Say as Say
from .suites import find_benchmark as find_benchmark
