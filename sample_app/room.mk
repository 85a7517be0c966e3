# train: C and CUDA kernels, linked with the shared CUDA runtime, cuBLAS and cuBLASLt, no RPATH, so that LD_LIBRARY_PATH
# chooses the libraries.
TRAIN_OBJ := $(call objs,$(wildcard sample_app/*.c))
$(TRAIN_OBJ): ROOM_CFLAGS = -isystem $(CUDA_INC)

# PTX for compute_80, which a newer device and the virtual GPU compile, and machine code for sm_80 and sm_90. The C++ that
# nvcc puts around the kernels must not need libstdc++.
TRAIN_CUBIN := -gencode arch=compute_80,code=[compute_80,sm_80] -gencode arch=compute_90,code=sm_90
TRAIN_KERNELS := $(patsubst %.cu,$(BUILD)/obj/%.o,$(wildcard sample_app/*.cu))
# From 8.9 on, which fp8 needs anyway, the cast is an instruction.
$(BUILD)/obj/sample_app/fp8_kernels.o: TRAIN_CUBIN := -gencode arch=compute_89,code=[compute_89,sm_89] -gencode arch=compute_90,code=sm_90
$(TRAIN_KERNELS): $(BUILD)/obj/%.o: %.cu sample_app/room.mk
	@mkdir -p $(@D)
	$(SAY) "  NVCC $<"
	$(Q)$(NVCC) -I. -std=c++17 -Xcompiler -Wall,-Wextra,-fPIC,-fno-exceptions,-fno-threadsafe-statics $(TRAIN_CUBIN) -MMD -MF $(@:.o=.d) -MP -c $< -o $@

$(BUILD)/train: $(TRAIN_OBJ) $(TRAIN_KERNELS)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ -L$(CUDA_LIB) -l:libcudart.so.13 -l:libcublas.so.13 -l:libcublasLt.so.13 -Wl,--allow-shlib-undefined -lm
ALL += $(BUILD)/train

# Tests: parts of train, driven by programs of tests/programs.
PROG_products_cases := $(call objs,$(patsubst %,sample_app/%.c,products products_fp8 device_tensors memory_pool truth train_options checked_call)) $(BUILD)/obj/sample_app/fp8_kernels.o
LIBS_products_cases := -l:libcublasLt.so.13
PROG_optimizer_cases := $(call objs,$(patsubst %,sample_app/%.c,optimizer device_tensors memory_pool truth train_options checked_call)) $(BUILD)/obj/sample_app/optimizer_kernels.o
PROG_kernel_formats := $(call objs,sample_app/checked_call.c) $(BUILD)/obj/sample_app/gpt_kernels.o
PROG_batch_order := $(call objs,$(patsubst %,sample_app/%.c,text_batches device_tensors memory_pool truth train_options checked_call))
$(call objs,tests/support/device_shim.c): ROOM_CFLAGS = -isystem $(CUDA_INC)
$(BUILD)/tests/device_shim.so: $(call objs,tests/support/device_shim.c)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -shared $^ -o $@
TEST_PROGRAMS += $(BUILD)/tests/device_shim.so
UNIT_memory_pool := $(call objs,sample_app/memory_pool.c)
PROG_tensor_sets := $(call objs,$(patsubst %,sample_app/%.c,device_tensors memory_pool truth train_options checked_call))
