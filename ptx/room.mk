# ptx/: the reader of PTX and fat binaries, the interpreter, what a kernel reads and writes. Programs link $(PTX_OBJ) and
# $(PTX_LIBS).
PTX_SRC := $(wildcard ptx/*.c)
PTX_OBJ := $(call objs,$(PTX_SRC))
PTX_LIBS := -lzstd -llz4 -lm
PTX_LIBS_INSIDE := -l:libzstd.a -l:liblz4.a -lm
# Only the reader: what the parser is made of.
PTX_READER_SRC := ptx/ptx_lex.c ptx/ptx_types.c ptx/ptx_words.c ptx/ptx_check.c ptx/ptx_flow.c $(wildcard ptx/ptx_parse*.c)
PTX_ACCESS_SRC := $(PTX_READER_SRC) ptx/ptx_symbolic.c $(wildcard ptx/ptx_access*.c)

UNIT_ptx_parse = $(call objs,$(PTX_READER_SRC))
UNIT_ptx_fatbin = $(call objs,ptx/ptx_fatbin.c)
LIBS_ptx_fatbin = $(PTX_LIBS)


# Kernels whose accesses a test knows, optimised and not.
ACCESS_PTX := $(BUILD)/tests/access_kernels.ptx
ACCESS_PTX_G := $(BUILD)/tests/access_kernels_g.ptx
$(BUILD)/obj/tests/unit/test_ptx_access.o: ROOM_CFLAGS = -DACCESS_PTX='"$(abspath $(ACCESS_PTX))"' -DACCESS_PTX_G='"$(abspath $(ACCESS_PTX_G))"'
$(BUILD)/obj/tests/unit/test_ptx_fatbin.o: ROOM_CFLAGS = -DSEEDS='"$(CURDIR)/tests/fuzz/seeds_fuzz_fatbin"'
UNIT_ptx_access = $(call objs,$(PTX_ACCESS_SRC)) | $(ACCESS_PTX) $(ACCESS_PTX_G)
$(ACCESS_PTX_G): ACCESS_NVCC = -G
$(ACCESS_PTX) $(ACCESS_PTX_G): tests/programs/access_kernels.cu
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -ptx -arch=compute_80 $(ACCESS_NVCC) $< -o $@

# Fuzzers, as in trace/room.mk.
FUZZ_FLAGS = $(CPPFLAGS_ALL) -std=c11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined
$(BUILD)/fuzz/fuzz_ptx: tests/fuzz/fuzz_ptx.c $(PTX_SRC) $(wildcard ptx/*.h) ptx/ptx_opcodes.def
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CLANG) $(FUZZ_FLAGS) $(filter %.c,$^) -o $@ $(PTX_LIBS)
$(BUILD)/fuzz/fuzz_fatbin: tests/fuzz/fuzz_fatbin.c ptx/ptx_fatbin.c $(wildcard ptx/*.h) include/acct/fatbin.h
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CLANG) $(FUZZ_FLAGS) $(filter %.c,$^) -o $@ $(PTX_LIBS)
FUZZERS += $(BUILD)/fuzz/fuzz_ptx $(BUILD)/fuzz/fuzz_fatbin
TEST_PROGRAMS += $(BUILD)/fuzz/fuzz_ptx $(BUILD)/fuzz/fuzz_fatbin

# Kernels whose costs are compared with the interpreter's counts, optimised and not.
COST_PTX := $(patsubst %,$(BUILD)/tests/cost/%.ptx,gpt_kernels gpt_kernels_g optimizer_kernels bench_jit_kernels cost_kernels)
$(BUILD)/tests/cost/%.ptx: sample_app/%.cu $(wildcard sample_app/*.h)
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -I. -std=c++17 -ptx -arch=compute_80 $< -o $@
$(BUILD)/tests/cost/%_g.ptx: sample_app/%.cu $(wildcard sample_app/*.h)
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -I. -std=c++17 -G -ptx -arch=compute_80 $< -o $@
$(BUILD)/tests/cost/bench_jit_kernels.ptx: bench/bench_jit_kernels.cu
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -ptx -arch=compute_80 $< -o $@
$(BUILD)/tests/cost/cost_kernels.ptx: tests/programs/cost_kernels.cu
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -ptx -arch=compute_80 $< -o $@
UNIT_test_ptx_cost = $(PTX_OBJ) | $(BUILD)/tests/cost/cost_kernels.ptx
LIBS_test_ptx_cost = $(PTX_LIBS)
UNIT_test_ptx_cost_sweep = $(PTX_OBJ) | $(COST_PTX) $(ACCESS_PTX) $(ACCESS_PTX_G)
LIBS_test_ptx_cost_sweep = $(PTX_LIBS)
TEST_PROGRAMS += $(COST_PTX)

BENCHES += $(BUILD)/bench/bench_cost
$(BUILD)/bench/bench_cost: $$(call objs,bench/bench_cost.c bench/bench_cost_cached.c $$(ANALYSIS_SRC) $$(STORE_SRC)) $(PTX_OBJ) | $(COST_PTX)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(STORE_LIBS) $(PTX_LIBS) -l:libstdc++.a -lm -lpthread

# Kernels of matrix units and of asynchronous copies.
MATRIX_PTX := $(BUILD)/tests/matrix_kernels.ptx
ASYNC_PTX := $(BUILD)/tests/async_kernels.ptx
$(MATRIX_PTX): MATRIX_ARCH = compute_90
$(ASYNC_PTX): MATRIX_ARCH = compute_80
$(MATRIX_PTX) $(ASYNC_PTX): $(BUILD)/tests/%.ptx: tests/programs/%.cu
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -std=c++17 -diag-suppress 20054 -ptx -arch=$(MATRIX_ARCH) $< -o $@
$(BUILD)/obj/tests/unit/test_ptx_matrix.o: ROOM_CFLAGS = -DMATRIX_PTX='"$(abspath $(MATRIX_PTX))"' -DASYNC_PTX='"$(abspath $(ASYNC_PTX))"'
UNIT_ptx_matrix = $(PTX_OBJ) | $(MATRIX_PTX) $(ASYNC_PTX)
LIBS_ptx_matrix = $(PTX_LIBS)
