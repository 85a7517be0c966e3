# acct-bench: the program that measures for `acct bench`. It links nothing of CUDA and opens the runtime and cuBLAS by name
# when it runs, so it starts on any machine; its kernels are in it as PTX.
MEASURE_SRC := $(wildcard measure/*.c)
$(call objs,$(MEASURE_SRC)): ROOM_CFLAGS = -isystem $(CUDA_INC)
$(BUILD)/gen/measure_kernels.ptx: measure/measure_kernels.cu measure/room.mk
	@mkdir -p $(@D)
	$(SAY) "  NVCC $<"
	$(Q)$(NVCC) -std=c++17 -ptx -arch=compute_75 $< -o $@
$(call objs,measure/measure_ptx.c): ROOM_CFLAGS = -DMEASURE_PTX='"$(BUILD)/gen/measure_kernels.ptx"'
$(call objs,measure/measure_ptx.c): $(BUILD)/gen/measure_kernels.ptx
$(BUILD)/acct-bench: $(call objs,$(MEASURE_SRC))
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ -ldl -lm
ALL += $(BUILD)/acct-bench

UNIT_test_measured = $(call objs,measure/measure_times.c)
