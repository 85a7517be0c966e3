# libacct.so: what runs inside the traced program. The wrappers are made from the CUDA headers at build time.
PRELOAD_GEN := $(addprefix $(BUILD)/gen/,api.h api_names.c wrap_cudart.c wrap_cublas.c wrap_cublasLt.c libacct.map)
PRELOAD_OBJ := $(call objs,$(addprefix preload/,life.c hook.c facts.c facts_memory.c rendezvous.c spawn.c say.c real.c fill_runtime.c fill_blas.c fill_lt.c fill_launch.c launch_wrappers.c kernels.c kernels_tell.c kernels_file.c) trace/ring.c $(CUPTI_SRC)) \
	$(addprefix $(BUILD)/obj/gen/,api_names.o wrap_cudart.o wrap_cublas.o wrap_cublasLt.o)
PRELOAD_ROOM_OBJ := $(filter-out $(BUILD)/obj/trace/% $(BUILD)/obj/cupti/%,$(PRELOAD_OBJ))

$(PRELOAD_GEN) &: preload/gen_wrappers.py preload/api.table preload/launch_stubs.h $(CUDA_INC)/cuda_runtime_api.h $(CUDA_INC)/cublas_api.h $(CUDA_INC)/cublasLt.h
	@mkdir -p $(BUILD)/gen
	$(SAY) "  GEN $(BUILD)/gen/wrap_cudart.c and others"
	$(Q)$(PYTHON) preload/gen_wrappers.py --clang $(CLANG) --include $(CUDA_INC) --table preload/api.table --out $(BUILD)/gen
	@touch $(PRELOAD_GEN)

$(PRELOAD_ROOM_OBJ): | $(PRELOAD_GEN)
$(PRELOAD_ROOM_OBJ): ROOM_CFLAGS = -isystem $(CUDA_INC) -fvisibility=hidden -ftls-model=initial-exec -fno-stack-protector -Wno-deprecated-declarations
# Its own visibility comes by the export list alone.
$(addprefix $(BUILD)/obj/,gen/wrap_cudart.o gen/wrap_cublas.o gen/wrap_cublasLt.o preload/launch_wrappers.o): ROOM_CFLAGS = -isystem $(CUDA_INC) -ftls-model=initial-exec -fno-stack-protector -Wno-deprecated-declarations

# nodelete: exit handlers and thread keys point into it. now: no lazy binding, so no symbol look-up inside a call.
$(BUILD)/libacct.so: $(PRELOAD_OBJ) $(BUILD)/gen/libacct.map
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-z,nodelete -Wl,-z,now -Wl,-z,defs -Wl,--version-script=$(BUILD)/gen/libacct.map -Wl,-soname,libacct.so -o $@ $(PRELOAD_OBJ)
ALL += $(BUILD)/libacct.so

LIBS_preload_lt := -l:libcublasLt.so.13
LIBS_train_lt := -l:libcublasLt.so.13
UNIT_test_ring := $(call objs,trace/ring.c)
UNIT_test_kernels := $(call objs,preload/kernels.c preload/kernels_file.c)

BENCHES += $(BUILD)/bench/bench_ring $(BUILD)/bench/bench_malloc
# Without LTTng's packages it is built all the same, and says what is missing.
BENCH_LTTNG_LIBS := $(if $(wildcard /usr/include/lttng/tracepoint.h /usr/include/*/lttng/tracepoint.h),-llttng-ust -llttng-ust-common -ldl)
$(BUILD)/bench/bench_ring: $(call objs,bench/bench_ring.c trace/ring.c)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(BENCH_LTTNG_LIBS)
# Its first process, which sets LD_LIBRARY_PATH for the second, must load too where no CUDA is installed (NVIDIA's wheels).
BENCH_RUNTIME := -Wl,--enable-new-dtags -Wl,-rpath,'$$ORIGIN/../vgpu'
$(call objs,bench/bench_malloc.c): ROOM_CFLAGS = -isystem $(CUDA_INC)
$(BUILD)/bench/bench_malloc: $(call objs,bench/bench_malloc.c)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $< -o $@ -L$(CUDA_LIB) -l:libcudart.so.13 $(BENCH_RUNTIME)

# A program as nvcc makes it; its runtime comes by LD_LIBRARY_PATH.
BENCHES += $(BUILD)/bench/bench_launch
$(BUILD)/bench/bench_launch: bench/bench_launch.cu bench/bench_preloaded.h
	@mkdir -p $(@D)
	$(SAY) "  NVCC $<"
	$(Q)$(NVCC) -O2 -cudart shared -gencode arch=compute_80,code=compute_80 -I. $< -o $@

# Programs of the tests as nvcc makes them: by each of its ways to pack PTX, linked device code, and a plug-in.
CAPTURE_NVCC = $(NVCC) -cudart shared -gencode arch=compute_80,code=compute_80 -gencode arch=compute_90,code=sm_90
CAPTURE_PROGRAMS := $(addprefix $(BUILD)/tests/,capture_kernels capture_plain capture_lz4 capture_linked capture_needed capture_no_ptx capture_plugin.so)
TEST_PROGRAMS += $(CAPTURE_PROGRAMS)
$(BUILD)/tests/capture_plain: CAPTURE_HOW = --no-compress
$(BUILD)/tests/capture_lz4: CAPTURE_HOW = --compress-mode=speed
$(BUILD)/tests/capture_linked: CAPTURE_HOW = -rdc=true -Xlinker --export-dynamic tests/programs/capture_plugin.cu
$(BUILD)/tests/capture_needed: CAPTURE_HOW = -Xlinker --no-as-needed,-rpath,'$$ORIGIN',$(BUILD)/tests/capture_plugin.so
$(BUILD)/tests/capture_needed: $(BUILD)/tests/capture_plugin.so
$(BUILD)/tests/capture_no_ptx: CAPTURE_NVCC = $(NVCC) -cudart shared -gencode arch=compute_90,code=sm_90
$(filter-out %.so,$(CAPTURE_PROGRAMS)): tests/programs/capture_kernels.cu tests/programs/capture_plugin.cu preload/room.mk
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(CAPTURE_NVCC) $(CAPTURE_HOW) $< -o $@ -ldl
$(BUILD)/tests/capture_plugin.so: tests/programs/capture_plugin.cu preload/room.mk
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(CAPTURE_NVCC) -shared -Xcompiler -fPIC -Xlinker -soname,$(@F) $< -o $@
