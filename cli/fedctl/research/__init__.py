"""Commands of somebody who studies methods: simulations, studies, comparisons, partitions and the benchmark of rounds."""
