# acct. `make`, `make demo`, `make check`, `make bench`, `make install`; `make help` lists the rest.
# Each room has its own room.mk; this file has what they share.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
OPT ?= -O2 -g
SANITIZE ?=
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

# Where the toolkit, the libraries and python are: found, or installed where it may be, by scripts/deps.
NODEPS := help clean install-deps format
ifneq ($(filter-out $(NODEPS),$(or $(MAKECMDGOALS),all)),)
include $(BUILD)/deps.mk
endif
$(BUILD)/deps.mk: scripts/deps
	@mkdir -p $(BUILD)
	@scripts/deps --output $@

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-missing-field-initializers
CPPFLAGS_ALL = -I. -Iinclude -I$(BUILD)/gen -D_GNU_SOURCE
CFLAGS_ALL = -std=c11 $(OPT) $(WARN) -fPIC -MMD -MP $(SANITIZE)
LDFLAGS_ALL = $(SANITIZE)

# One rule for every C file of the tree: x/y.c → build/obj/x/y.o. A room adds flags for its own objects with a
# target-specific ROOM_CFLAGS.
$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(ROOM_CFLAGS) $(CFLAGS) -c $< -o $@
$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(ROOM_CFLAGS) $(CFLAGS) -c $< -o $@
objs = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

ALL :=
TEST_PROGRAMS :=
include $(wildcard */room.mk)

.PHONY: all demo check bench install clean help format
all: $(ALL)

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)
## make            build everything into $(BUILD)
## make demo       train the linear model under acct and print the report
## make check      all tests; the last line is "N passed, N failed, N skipped"
## make bench      ratios against named peers
## make install    into $(PREFIX); DESTDIR is honoured
## make format     clang-format over the tree
clean:
	rm -rf $(BUILD)
format:
	git ls-files '*.c' '*.h' | xargs clang-format -i

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
