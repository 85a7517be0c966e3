# The collector of device times: part of libacct.so. The vendor's headers are for the structs; libcupti is opened at run time.
CUPTI_SRC := $(addprefix cupti/,cupti_life.c cupti_open.c cupti_enable.c cupti_buffer.c cupti_record.c cupti_name.c)
CUPTI_OBJ := $(call objs,$(CUPTI_SRC))

# The calls whose records bring external correlations: all that launch, copy or set, per-thread variants included.
CUPTI_ENUM = s/^ *CUPTI_$(1)_TRACE_CBID_\([A-Za-z0-9_]*\) *=.*/\1/p
CUPTI_RUNTIME := ^(__)?cuda(Launch(_|Kernel|Cooperative)|Memcpy|Memset|GraphLaunch)
CUPTI_DRIVER := ^cu(Launch($$|_|Grid|Kernel|Cooperative)|Memcpy|Memset|GraphLaunch)
$(BUILD)/gen/cupti_calls.h: $(CUDA_INC)/cupti_runtime_cbid.h $(CUDA_INC)/cupti_driver_cbid.h cupti/room.mk
	@mkdir -p $(@D)
	@{ sed -n '$(call CUPTI_ENUM,RUNTIME)' $< | grep -E '$(CUPTI_RUNTIME)' | sed 's/.*/RUNTIME(&)/'; \
	   sed -n '$(call CUPTI_ENUM,DRIVER)' $(word 2,$^) | grep -E '$(CUPTI_DRIVER)' | sed 's/.*/DRIVER(&)/'; } >$@

$(CUPTI_OBJ): $(BUILD)/gen/cupti_calls.h
$(CUPTI_OBJ): ROOM_CFLAGS = -isystem $(CUDA_INC) -fvisibility=hidden -ftls-model=initial-exec -fno-stack-protector -Wno-deprecated-declarations

# Tests: a libcupti that does what it is told to.
CUPTI_FAKE := $(BUILD)/tests/fake_cupti/libcupti.so.13
CUPTI_TESTS := $(call objs,$(addprefix tests/unit/,test_cupti_records.c test_cupti_life.c))
$(call objs,tests/support/fake_cupti.c) $(CUPTI_TESTS): ROOM_CFLAGS = -isystem $(CUDA_INC)
$(CUPTI_FAKE): $(call objs,tests/support/fake_cupti.c)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libcupti.so.13 -o $@ $^ -lpthread
UNIT_cupti_records := $(CUPTI_OBJ) $(call objs,trace/ring.c trace/ring_read.c trace/event_table.c) | $(CUPTI_FAKE)
UNIT_cupti_life := $(UNIT_cupti_records)
TEST_PROGRAMS += $(CUPTI_FAKE)
