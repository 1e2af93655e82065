// How fast does the SM's clock run now? Counts its cycles (clock64) over 30 us of the global timer.

extern "C" __global__ void clock_probe(unsigned long long* result) {
    if (threadIdx.x != 0) return;
    unsigned long long begin, now, tick;
    // The timer moves in steps: start at one, so that the interval has no part of a step.
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(tick));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    } while (begin == tick);
    const long long cycles = clock64();
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < 30000);
    result[0] = clock64() - cycles;
    result[1] = now - begin;
}
