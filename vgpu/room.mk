# The virtual GPU: an engine with everything in it, and stand-ins that are generated from what the engine defines.
VGPU_GEN := $(BUILD)/gen/vgpu
VGPU_BLAS_SRC := $(wildcard vgpu/vgpu_blas_*.c)
VGPU_LT_SRC := $(wildcard vgpu/vgpu_lt_*.c)
VGPU_STANDIN_SRC := $(wildcard vgpu/vgpu_standin*.c)
VGPU_JIT_SRC := $(wildcard vgpu/vgpu_jit_*.c)
VGPU_CUPTI_SRC := $(wildcard vgpu/vgpu_cupti_*.c)
VGPU_NCCL_SRC := $(wildcard vgpu/vgpu_nccl_*.c)
VGPU_CUDA_SRC := $(filter-out $(VGPU_BLAS_SRC) $(VGPU_LT_SRC) $(VGPU_STANDIN_SRC) $(VGPU_JIT_SRC) $(VGPU_CUPTI_SRC) $(VGPU_NCCL_SRC) vgpu/vgpu_tables.c,$(wildcard vgpu/vgpu_*.c))
VGPU_BLAS := $(call objs,$(VGPU_BLAS_SRC))
VGPU_LT := $(call objs,$(VGPU_LT_SRC))
VGPU_CUDA := $(call objs,$(VGPU_CUDA_SRC))
VGPU_JIT := $(call objs,$(VGPU_JIT_SRC))
VGPU_CUPTI := $(call objs,$(VGPU_CUPTI_SRC))
VGPU_NCCL := $(call objs,$(VGPU_NCCL_SRC))
VGPU_TABLES := $(call objs,vgpu/vgpu_tables.c) $(foreach l,cudart cublas cublasLt cupti nccl,$(BUILD)/obj/gen/vgpu/vgpu_$(l)_table.o)
VGPU_ENGINE := $(VGPU_BLAS) $(VGPU_LT) $(VGPU_CUDA) $(VGPU_JIT) $(VGPU_CUPTI) $(VGPU_NCCL) $(VGPU_TABLES)
VGPU_STANDIN := $(BUILD)/obj/vgpu/vgpu_standin.o
VGPU_OWN := $(BUILD)/obj/vgpu/vgpu_standin_cudart.o
VGPU_GENERATED := $(foreach l,cudart cublas cublasLt cupti nccl,$(foreach s,standin missing table,$(BUILD)/obj/gen/vgpu/vgpu_$(l)_$(s).o))
VGPU_LIBS := $(BUILD)/vgpu/libcudart.so.13 $(BUILD)/vgpu/libcublas.so.13 $(BUILD)/vgpu/libcublasLt.so.13 $(BUILD)/vgpu/libcupti.so.13 $(BUILD)/vgpu/libnccl.so.2 $(BUILD)/vgpu/libacct-vgpu.so
ALL += $(VGPU_LIBS)

# In the engine all is hidden but vgpu_engine; the stand-ins' exports are in their version scripts.
$(VGPU_ENGINE) $(VGPU_STANDIN) $(VGPU_OWN) $(VGPU_GENERATED): ROOM_CFLAGS = -isystem $(CUDA_INC) -I$(VGPU_GEN)
$(VGPU_ENGINE): ROOM_CFLAGS += -fvisibility=hidden
$(VGPU_JIT): ROOM_CFLAGS += -isystem $(shell $(LLVM_CONFIG) --includedir)
$(VGPU_GENERATED): ROOM_CFLAGS += -Wno-deprecated-declarations
$(VGPU_BLAS) $(VGPU_LT) $(BUILD)/obj/vgpu/vgpu_convert.o: ROOM_CFLAGS += -O3

# LLVM is in the engine alone, which programs open with RTLD_LOCAL.
VGPU_JIT_LIBS = $(shell $(LLVM_CONFIG) --ldflags) $(shell $(LLVM_CONFIG) --link-shared --libs)
VGPU_GENERATE = $(PYTHON) vgpu/generate.py --include $(CUDA_INC) --clang $(CLANG)
$(BUILD)/obj/vgpu/vgpu_error.o: $(VGPU_GEN)/vgpu_cudart_errors.h
$(BUILD)/obj/vgpu/vgpu_blas_handle.o: $(VGPU_GEN)/vgpu_cublas_errors.h
$(BUILD)/obj/vgpu/vgpu_cupti_names.o: $(VGPU_GEN)/vgpu_cupti_errors.h $(VGPU_GEN)/vgpu_cupti_cbids.h
# One run writes both, in no order that times could tell.
$(VGPU_GEN)/vgpu_cupti_errors.h $(VGPU_GEN)/vgpu_cupti_cbids.h &: vgpu/generate.py
	$(SAY) "  GEN $(VGPU_GEN)/vgpu_cupti_errors.h"
	$(Q)$(VGPU_GENERATE) --errors-only --library cupti --real - --out $(VGPU_GEN)/vgpu_cupti
$(VGPU_GEN)/vgpu_%_errors.h: vgpu/generate.py
	$(SAY) "  GEN $@"
	$(Q)$(VGPU_GENERATE) --errors-only --library $* --real - --out $(VGPU_GEN)/vgpu_$*

# The grouped targets of each library come from one run of the generator.
VGPU_PARTS = $(foreach s,_api.h _table.c _standin.c _missing.c .map _exports.txt,$(VGPU_GEN)/vgpu_$(1)$(s))
$(call VGPU_PARTS,cudart) &: vgpu/generate.py $(VGPU_CUDA) $(VGPU_OWN)
	$(SAY) "  GEN $@"
	$(Q)$(VGPU_GENERATE) --library cudart --real $(CUDA_LIB)/libcudart.so.13 --own $(VGPU_OWN) --out $(VGPU_GEN)/vgpu_cudart $(VGPU_CUDA)
$(call VGPU_PARTS,cublas) &: vgpu/generate.py $(VGPU_BLAS)
	$(SAY) "  GEN $@"
	$(Q)$(VGPU_GENERATE) --library cublas --real $(CUDA_LIB)/libcublas.so.13 --out $(VGPU_GEN)/vgpu_cublas $(VGPU_BLAS)
$(call VGPU_PARTS,cublasLt) &: vgpu/generate.py $(VGPU_LT)
	$(SAY) "  GEN $@"
	$(Q)$(VGPU_GENERATE) --library cublasLt --real $(CUDA_LIB)/libcublasLt.so.13 --out $(VGPU_GEN)/vgpu_cublasLt $(VGPU_LT)

$(call VGPU_PARTS,cupti) &: vgpu/generate.py $(VGPU_CUPTI)
	$(SAY) "  GEN $@"
	$(Q)$(VGPU_GENERATE) --library cupti --real $(CUDA_LIB)/libcupti.so.13 --out $(VGPU_GEN)/vgpu_cupti $(VGPU_CUPTI)

# The toolkit has no NCCL: what its library exports is what our header declares.
$(call VGPU_PARTS,nccl) &: vgpu/generate.py vgpu/vgpu_nccl.h $(VGPU_NCCL)
	$(SAY) "  GEN $@"
	$(Q)$(VGPU_GENERATE) --library nccl --real - --out $(VGPU_GEN)/vgpu_nccl $(VGPU_NCCL)

$(BUILD)/vgpu/libacct-vgpu.so: vgpu/vgpu_engine.map $(VGPU_ENGINE) $$(PTX_OBJ)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) -shared $(LDFLAGS_ALL) -Wl,-z,defs -Wl,-Bsymbolic -Wl,--version-script=$< $(filter %.o,$^) -o $@ -lopenblas $(VGPU_JIT_LIBS) $(PTX_LIBS) -lm -lpthread
$(BUILD)/vgpu/libcudart.so.13: $(VGPU_STANDIN) $(VGPU_OWN) $(BUILD)/obj/gen/vgpu/vgpu_cudart_standin.o $(BUILD)/obj/gen/vgpu/vgpu_cudart_missing.o $(VGPU_GEN)/vgpu_cudart.map
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) -shared $(LDFLAGS_ALL) -Wl,-z,defs -Wl,-soname,$(@F) -Wl,--version-script=$(VGPU_GEN)/vgpu_cudart.map $(filter %.o,$^) -o $@
$(BUILD)/vgpu/libcublas.so.13 $(BUILD)/vgpu/libcublasLt.so.13 $(BUILD)/vgpu/libcupti.so.13: $(BUILD)/vgpu/lib%.so.13: $(VGPU_STANDIN) $(BUILD)/obj/gen/vgpu/vgpu_%_standin.o $(BUILD)/obj/gen/vgpu/vgpu_%_missing.o $(VGPU_GEN)/vgpu_%.map
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) -shared $(LDFLAGS_ALL) -Wl,-z,defs -Wl,-soname,$(@F) -Wl,--version-script=$(VGPU_GEN)/vgpu_$*.map $(filter %.o,$^) -o $@
$(BUILD)/vgpu/libnccl.so.2: $(VGPU_STANDIN) $(BUILD)/obj/gen/vgpu/vgpu_nccl_standin.o $(BUILD)/obj/gen/vgpu/vgpu_nccl_missing.o $(VGPU_GEN)/vgpu_nccl.map
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) -shared $(LDFLAGS_ALL) -Wl,-z,defs -Wl,-soname,$(@F) -Wl,--version-script=$(VGPU_GEN)/vgpu_nccl.map $(filter %.o,$^) -o $@
.PHONY: vgpu
vgpu: $(VGPU_LIBS)

# Tests: some see the stand-ins as a program does, some link with one part of the engine.
VGPU_TESTS := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/test_vgpu_*.c))
$(VGPU_TESTS:%=$(BUILD)/obj/tests/unit/%.o): ROOM_CFLAGS = -isystem $(CUDA_INC)
$(foreach t,$(filter-out test_vgpu_arena test_vgpu_heap test_vgpu_half test_vgpu_run test_vgpu_model test_vgpu_jit,$(VGPU_TESTS)),\
  $(eval UNIT_$(t) := $(BUILD)/vgpu/libcublas.so.13 $(BUILD)/vgpu/libcudart.so.13 | $(BUILD)/vgpu/libacct-vgpu.so)\
  $(eval LIBS_$(t) := -Wl,-rpath,$(abspath $(BUILD)/vgpu)))
$(foreach t,$(filter test_vgpu_lt% %_lt,$(VGPU_TESTS)),$(eval UNIT_$(t) := $(BUILD)/vgpu/libcublasLt.so.13 $(UNIT_$(t))))
$(foreach t,$(filter test_vgpu_nccl%,$(VGPU_TESTS)),$(eval UNIT_$(t) := $(BUILD)/vgpu/libnccl.so.2 $(UNIT_$(t))))
$(foreach t,$(filter test_vgpu_cupti%,$(VGPU_TESTS)),$(eval UNIT_$(t) := $(BUILD)/vgpu/libcupti.so.13 $(UNIT_$(t))))
# The compiler alone, on the kernel zoo.
UNIT_test_vgpu_jit = $(ZOO_OBJ) $(call objs,tests/zoo/zoo_interpret.c vgpu/vgpu_folder.c) $(VGPU_JIT) $(PTX_RUN) | $(ZOO_PTX)
LIBS_test_vgpu_jit = $(VGPU_JIT_LIBS) $(PTX_LIBS)
UNIT_test_vgpu_run = $(VGPU_ENGINE) $(PTX_OBJ)
LIBS_test_vgpu_run = -lopenblas $(VGPU_JIT_LIBS) $(PTX_LIBS)
UNIT_test_vgpu_model = $(VGPU_ENGINE) $(PTX_OBJ)
LIBS_test_vgpu_model = -lopenblas $(VGPU_JIT_LIBS) $(PTX_LIBS)
UNIT_test_vgpu_cupti_kernel := $(BUILD)/obj/tests/unit/vgpu_cupti_kernels.o $(UNIT_test_vgpu_cupti_kernel)
LIBS_test_vgpu_cupti_kernel += -lstdc++
$(BUILD)/obj/tests/unit/test_vgpu_lt_attribute.o: ROOM_CFLAGS += -DVENDOR_LT='"$(CUDA_LIB)/libcublasLt.so.13"'
$(BUILD)/obj/tests/unit/test_vgpu_cupti_api.o: ROOM_CFLAGS += -DVENDOR_CUPTI='"$(CUDA_LIB)/libcupti.so.13"'
$(BUILD)/obj/tests/unit/vgpu_cupti_kernels.o: tests/unit/vgpu_cupti_kernels.cu
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -cudart shared -gencode arch=compute_80,code=compute_80 -Xcompiler -fPIC -c $< -o $@
UNIT_test_vgpu_lt_check = $(call objs,vgpu/vgpu_lt_check.c vgpu/vgpu_rounding.c vgpu/vgpu_convert.c vgpu/vgpu_scratch.c)
LIBS_test_vgpu_lt_check =
UNIT_test_vgpu_arena := $(call objs,vgpu/vgpu_arena.c vgpu/vgpu_tree.c)
UNIT_test_vgpu_heap := $(UNIT_test_vgpu_arena) $(call objs,vgpu/vgpu_heap.c)
UNIT_test_vgpu_half := $(call objs,vgpu/vgpu_convert.c vgpu/vgpu_scratch.c)

# Profiles' names and files (clang only).
$(BUILD)/fuzz/fuzz_profile: tests/fuzz/fuzz_profile.c $(wildcard include/acct/*)
	@mkdir -p $(@D) $@.found
	$(SAY) "  FUZZ $@"
	$(Q)$(CLANG) $(CPPFLAGS_ALL) -std=c11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined $< -o $@ -lm
FUZZERS += $(BUILD)/fuzz/fuzz_profile
TEST_PROGRAMS += $(BUILD)/fuzz/fuzz_profile

# Programs as nvcc makes them; what they include of the toolkit does not change under a build.
VGPU_PROGRAMS := vgpu_kernel launch_cases launch_legacy launch_per_thread launch_units launch_machine launch_empty launch_plugin devices_cases profile_device profile_device_75 profile_device_90a profile_device_two graph_cases runtime_cases train_own_products
VGPU_PROGRAM_BIN := $(VGPU_PROGRAMS:%=$(BUILD)/tests/%)
TEST_PROGRAMS += $(VGPU_PROGRAM_BIN)
VGPU_PTX := -gencode arch=compute_80,code=compute_80
$(BUILD)/tests/vgpu_kernel: tests/programs/vgpu_kernel.cu
$(BUILD)/tests/launch_cases $(BUILD)/tests/launch_legacy $(BUILD)/tests/launch_per_thread $(BUILD)/tests/launch_machine: tests/programs/launch_cases.cu
$(BUILD)/tests/launch_units: tests/programs/launch_unit_a.cu tests/programs/launch_unit_b.cu
$(BUILD)/tests/launch_empty: tests/programs/launch_empty.cu
$(BUILD)/tests/devices_cases: tests/programs/devices_cases.cu | $(BUILD)/vgpu/libnccl.so.2
$(BUILD)/tests/devices_cases: NVCC_FLAGS = -Xlinker $(BUILD)/vgpu/libnccl.so.2
$(BUILD)/tests/graph_cases: tests/programs/graph_cases.cu
$(BUILD)/tests/runtime_cases: tests/programs/runtime_cases.cu
$(BUILD)/tests/train_own_products: tests/programs/train_own_products.cu
$(BUILD)/tests/graph_cases $(BUILD)/tests/train_own_products: NVCC_FLAGS = -L$(CUDA_LIB) -l:libcublas.so.13 -Xlinker --allow-shlib-undefined
$(BUILD)/tests/profile_device $(BUILD)/tests/profile_device_75 $(BUILD)/tests/profile_device_90a $(BUILD)/tests/profile_device_two: tests/programs/profile_device.cu
$(BUILD)/tests/launch_plugin: tests/programs/launch_plugin.cu
$(BUILD)/tests/launch_plugin: NVCC_FLAGS = -shared -Xcompiler -fPIC
$(BUILD)/tests/launch_legacy: NVCC_FLAGS = -D__NV_LEGACY_LAUNCH -Xcompiler -D__NV_LEGACY_LAUNCH
$(BUILD)/tests/launch_per_thread: NVCC_FLAGS = -default-stream per-thread
$(BUILD)/tests/launch_units: NVCC_FLAGS = -rdc=true
$(BUILD)/tests/profile_device_75: VGPU_PTX := -gencode arch=compute_75,code=compute_75
$(BUILD)/tests/profile_device_two: VGPU_PTX := -gencode arch=compute_80,code=compute_80 -gencode arch=compute_90a,code=compute_90a
$(BUILD)/tests/profile_device_90a: VGPU_PTX := -gencode arch=compute_90a,code=compute_90a
$(BUILD)/tests/launch_machine: VGPU_PTX := -gencode arch=compute_80,code=sm_80
$(VGPU_PROGRAM_BIN):
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -cudart shared -std=c++17 $(VGPU_PTX) $(NVCC_FLAGS) -I. $(filter %.cu,$^) -o $@
UNIT_ptx_link = $(call objs,$(PTX_SRC))
LIBS_ptx_link = $(PTX_LIBS)

# Compiled kernels against C loops.
BENCHES += $(BUILD)/bench/bench_jit
$(call objs,bench/bench_jit_loops.c): ROOM_CFLAGS = -O3 -march=native -ffast-math
$(BUILD)/bench/bench_jit: $(call objs,bench/bench_jit.c bench/bench_jit_loops.c vgpu/vgpu_folder.c vgpu/vgpu_run_fiber.c) $(VGPU_JIT) $$(PTX_RUN) | $(BUILD)/bench/bench_jit.ptx
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(VGPU_JIT_LIBS) $(PTX_LIBS) -lpthread
$(BUILD)/bench/bench_jit.ptx: bench/bench_jit_kernels.cu
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -ptx -arch=compute_80 $< -o $@

# Dry runs: operations a second.
BENCHES += $(BUILD)/bench/bench_dry
$(BUILD)/bench/bench_dry: bench/bench_dry.cu bench/bench_preloaded.h
	@mkdir -p $(@D)
	$(SAY) "  NVCC $<"
	$(Q)$(NVCC) -O2 -cudart shared -gencode arch=compute_80,code=compute_80 -I. $< -o $@ -L$(CUDA_LIB) -l:libcublas.so.13 -Xlinker --allow-shlib-undefined
