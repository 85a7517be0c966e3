/* The folder for what is kept between runs (ACCT_CACHE, else $XDG_CACHE_HOME/acct, else ~/.cache/acct). */
#ifndef VGPU_FOLDER_H
#define VGPU_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* Makes it if it is not there. false: there is no place for one. */
bool vgpu_cache_folder(char *path, size_t bytes);

#endif
