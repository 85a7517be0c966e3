# The kernel zoo: its PTX (as nvcc optimises it, and for debugging), its program, and the tests that read the PTX.
ZOO_CU := $(wildcard tests/zoo/*.cu)
ZOO_OBJ := $(call objs,$(filter-out tests/zoo/zoo_interpret.c,$(wildcard tests/zoo/*.c)))
ZOO_PTX := $(BUILD)/tests/zoo.ptx $(BUILD)/tests/zoo_debug.ptx
$(BUILD)/tests/zoo.ptx: ZOO_FLAGS =
$(BUILD)/tests/zoo_debug.ptx: ZOO_FLAGS = -G
$(ZOO_PTX): $(ZOO_CU)
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -ptx $(ZOO_FLAGS) -arch=compute_80 tests/zoo/zoo_kernels.cu -o $@
ZOO_BIN := $(BUILD)/tests/zoo $(BUILD)/tests/zoo_debug
$(BUILD)/tests/zoo_debug: ZOO_FLAGS = -G
$(ZOO_BIN): tests/zoo/zoo_main.cu $(ZOO_CU) $(ZOO_OBJ)
	@mkdir -p $(@D)
	$(SAY) "  NVCC $@"
	$(Q)$(NVCC) -I. $(ZOO_FLAGS) -cudart shared -gencode arch=compute_80,code=compute_80 $< $(ZOO_OBJ) -o $@
TEST_PROGRAMS += $(ZOO_PTX) $(ZOO_BIN)

# All of ptx/ but the access analysis.
PTX_RUN := $(call objs,$(filter-out ptx/ptx_access% ptx/ptx_symbolic%,$(wildcard ptx/*.c)))
UNIT_test_ptx_zoo = $(ZOO_OBJ) $(call objs,tests/zoo/zoo_interpret.c) $(PTX_RUN) | $(ZOO_PTX)
LIBS_test_ptx_zoo = $(PTX_LIBS)
UNIT_test_ptx_interp = $(PTX_RUN)
LIBS_test_ptx_interp = $(PTX_LIBS)

# Single instructions: a program that runs the entries of a PTX file.
$(BUILD)/tests/ptx_exec: $(call objs,tests/support/ptx_exec.c) $(PTX_RUN)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(PTX_LIBS)
TEST_PROGRAMS += $(BUILD)/tests/ptx_exec
UNIT_test_ptx_access_zoo = $(ZOO_OBJ) $(call objs,tests/zoo/zoo_interpret.c) $(PTX_OBJ) | $(ZOO_PTX)
LIBS_test_ptx_access_zoo = $(PTX_LIBS)
UNIT_test_ptx_cost_zoo = $(ZOO_OBJ) $(call objs,tests/zoo/zoo_interpret.c) $(PTX_OBJ) | $(ZOO_PTX)
LIBS_test_ptx_cost_zoo = $(PTX_LIBS)
# The same by the compiler of the virtual GPU.
$(BUILD)/obj/tests/support/ptx_exec_jit.o: tests/support/ptx_exec.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(SAY) "  CC $< (jit)"
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(CFLAGS) -DPTX_EXEC_JIT -c $< -o $@
$(BUILD)/tests/ptx_exec_jit: $(BUILD)/obj/tests/support/ptx_exec_jit.o $(call objs,vgpu/vgpu_folder.c) $$(VGPU_JIT) $(PTX_RUN)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(VGPU_JIT_LIBS) $(PTX_LIBS) -lpthread
TEST_PROGRAMS += $(BUILD)/tests/ptx_exec_jit
