# trace/: the wire contract, the store, and acct-collect. The ring's writing side is compiled into libacct.so by preload/.

# schema.sql as C strings, so that the programs carry it: the indexes apart, since they are made when recording ends.
SQL_AS_C = sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/'
$(BUILD)/gen/store_schema.h: trace/schema.sql trace/room.mk
	@mkdir -p $(@D)
	$(SAY) "  GEN $@"
	$(Q){ echo 'static const char store_schema_sql[] ='; grep -v '^CREATE INDEX' $< | $(SQL_AS_C); echo '    ;'; \
	  echo 'static const char store_index_sql[] ='; sed -n 's/^CREATE INDEX/& IF NOT EXISTS/p' $< | $(SQL_AS_C); echo '    ;'; } > $@
$(BUILD)/obj/trace/store.o: $(BUILD)/gen/store_schema.h

STORE_SRC := trace/store.c trace/event_table.c
STORE_LIBS := -lsqlite3

UNIT_store = $(call objs,$(STORE_SRC))
LIBS_store = $(STORE_LIBS)

COLLECT_SRC := $(STORE_SRC) trace/ring_read.c $(filter-out trace/collect_main.c,$(wildcard trace/collect_*.c))
$(BUILD)/acct-collect: $(call objs,$(COLLECT_SRC) trace/collect_main.c)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(STORE_LIBS)
ALL += $(BUILD)/acct-collect

# For `make dist`: the libraries inside.
STORE_LIBS_INSIDE := -l:libsqlite3.a -lm
$(BUILD)/static/acct-collect: $(call objs,$(COLLECT_SRC) trace/collect_main.c)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(STORE_LIBS_INSIDE)
DIST += $(BUILD)/static/acct-collect

# What the tests of the collector drive it with; it writes with libacct.so's own ring writer.
$(BUILD)/tests/fake_program: $(call objs,tests/support/fake_program.c trace/ring.c)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@
TEST_PROGRAMS += $(BUILD)/tests/fake_program

COLLECT_OBJ := $(call objs,$(COLLECT_SRC))
$(BUILD)/bench/bench_collector: $(call objs,bench/bench_collector.c trace/ring.c) $(COLLECT_OBJ)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $^ -o $@ $(STORE_LIBS)
BENCHES += $(BUILD)/bench/bench_collector

UNIT_ring_read = $(call objs,trace/ring.c trace/ring_read.c trace/event_table.c)
UNIT_collect_life = $(call objs,trace/collect_life.c)
UNIT_collect_name = $(call objs,trace/collect_name.c trace/collect_text.c)
LIBS_collect_name = $(STORE_LIBS)

# Fuzzers (clang only). `make fuzz` runs each of $(FUZZERS) for FUZZ_SECONDS; make check does so briefly.
FUZZ_SECONDS ?= 60
FUZZ_RING_SRC := tests/fuzz/fuzz_ring.c trace/ring.c trace/ring_read.c trace/collect_rows.c trace/collect_bind.c trace/collect_life.c trace/collect_text.c trace/collect_modules.c trace/collect_activity.c $(STORE_SRC)
$(BUILD)/fuzz/fuzz_ring: $(FUZZ_RING_SRC) $(wildcard trace/*.h) trace/events.def $(BUILD)/gen/store_schema.h
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CLANG) $(CPPFLAGS_ALL) -std=c11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined $(FUZZ_RING_SRC) -o $@ $(STORE_LIBS)
FUZZERS += $(BUILD)/fuzz/fuzz_ring
TEST_PROGRAMS += $(BUILD)/fuzz/fuzz_ring

.PHONY: fuzz
fuzz: $(FUZZERS)
	for f in $(FUZZERS); do mkdir -p $$f.found; \
	  $$f -max_total_time=$(FUZZ_SECONDS) -verbosity=0 -artifact_prefix=$$f.crash- $$f.found $$(ls -d tests/fuzz/seeds_$${f##*/} 2>/dev/null) || exit 1; done

# Makes a file system look like NFS to the collector, for the tests.
$(BUILD)/tests/nfs_shim.so: $(call objs,tests/support/nfs_shim.c)
	@mkdir -p $(@D)
	$(SAY) "  LD $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -shared $^ -o $@
TEST_PROGRAMS += $(BUILD)/tests/nfs_shim.so
