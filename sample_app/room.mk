# train: plain C, linked with the shared CUDA runtime and cuBLAS, no RPATH, so that LD_LIBRARY_PATH chooses the libraries.
TRAIN_OBJ := $(call objs,$(wildcard sample_app/*.c))
$(TRAIN_OBJ): ROOM_CFLAGS = -isystem $(CUDA_INC)
$(BUILD)/train: $(TRAIN_OBJ)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ -o $@ -L$(CUDA_LIB) -l:libcudart.so.13 -l:libcublas.so.13 -Wl,--allow-shlib-undefined -lm
ALL += $(BUILD)/train
