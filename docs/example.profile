# A board of one's own for the virtual GPU: acct run --vgpu=docs/example.profile -- ./train
# All figures but those given here are the base's. docs/PROFILES.md has all keys.
base     = h100-sxm
name     = H100 64GB, an example   # as cudaGetDeviceProperties tells it
total    = 64GiB
reserved = 600MiB                  # context and driver, before the program's first allocation
bandwidth = 2000GB/s
bf16     = 756.5TFLOP/s            # dense; fp16 stays the base's
fp8      = none                    # no such unit
host_link = 25GB/s                 # one way
launch   = 3us
