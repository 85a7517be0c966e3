# acct-bench: the program that measures for `acct bench`. It links nothing of CUDA and opens the runtime and cuBLAS by name
# when it runs, so it starts on any machine; its kernels are in it as PTX, marked as the version that their instructions need,
# not as the compiler's: a driver refuses PTX that is marked as newer than itself.
MEASURE_SRC := $(wildcard measure/*.c)
$(call objs,$(MEASURE_SRC)): ROOM_CFLAGS = -isystem $(CUDA_INC)
$(BUILD)/gen/measure_kernels.ptx: measure/measure_kernels.cu measure/room.mk
	@mkdir -p $(@D)
	$(SAY) "  NVCC $<"
	$(Q)$(NVCC) -std=c++17 -ptx -arch=compute_75 $< -o $@.new && sed 's/^\.version .*/.version 7.0/' $@.new > $@ && rm $@.new
$(call objs,measure/measure_ptx.c): ROOM_CFLAGS = -DMEASURE_PTX='"$(BUILD)/gen/measure_kernels.ptx"'
$(call objs,measure/measure_ptx.c): $(BUILD)/gen/measure_kernels.ptx
$(BUILD)/acct-bench: $(call objs,$(MEASURE_SRC))
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ -ldl -lm
ALL += $(BUILD)/acct-bench

UNIT_test_measured = $(call objs,measure/measure_times.c)
PROG_measure_fill := $(call objs,measure/measure_cuda.c measure/measure_ptx.c)
LIBS_measure_fill := -ldl
