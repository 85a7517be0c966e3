# bench_analyze: synthetic traces of many calls, analysed and reported. (The other benchmarks are built where what they measure is.)
BENCHES += $(BUILD)/bench/bench_analyze
ANALYZE_PTX := $(BUILD)/bench/bench_analyze_kernels.ptx
$(ANALYZE_PTX): bench/bench_analyze_kernels.cu
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -ptx -arch=compute_80 $< -o $@
$(BUILD)/bench/bench_analyze: $$(call objs,bench/bench_analyze.c bench/bench_analyze_trace.c bench/bench_analyze_rows.c $$(STORE_SRC)) | $(ANALYZE_PTX) $(BUILD)/acct
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(STORE_LIBS) -lm
TEST_PROGRAMS += $(BUILD)/bench/bench_analyze
