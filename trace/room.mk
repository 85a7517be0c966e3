# trace/: the wire contract, the store, and acct-collect. The ring's writing side is compiled into libacct.so by preload/.

# schema.sql as a C string, so that the programs carry it.
$(BUILD)/gen/store_schema.h: trace/schema.sql
	@mkdir -p $(@D)
	{ echo 'static const char store_schema_sql[] ='; sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/' $<; echo '    ;'; } > $@
$(BUILD)/obj/trace/store.o: $(BUILD)/gen/store_schema.h

STORE_SRC := trace/store.c trace/event_table.c
STORE_LIBS := -lsqlite3

UNIT_store = $(call objs,$(STORE_SRC))
LIBS_store = $(STORE_LIBS)

COLLECT_SRC := $(STORE_SRC) trace/ring_read.c $(filter-out trace/collect_main.c,$(wildcard trace/collect_*.c))
$(BUILD)/acct-collect: $(call objs,$(COLLECT_SRC) trace/collect_main.c)
	$(CC) $(LDFLAGS_ALL) $^ -o $@ $(STORE_LIBS)
ALL += $(BUILD)/acct-collect

# What the tests of the collector drive it with; it writes with libacct.so's own ring writer.
$(BUILD)/tests/fake_program: $(call objs,tests/support/fake_program.c trace/ring.c)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS_ALL) $^ -o $@
TEST_PROGRAMS += $(BUILD)/tests/fake_program
