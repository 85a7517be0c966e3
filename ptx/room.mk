# ptx/: the reader of PTX and fat binaries, the interpreter, what a kernel reads and writes. Programs link $(PTX_OBJ) and
# $(PTX_LIBS).
PTX_SRC := $(wildcard ptx/*.c)
PTX_OBJ := $(call objs,$(PTX_SRC))
PTX_LIBS := -lzstd -llz4 -lm
