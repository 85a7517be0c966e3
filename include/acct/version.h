/* The version of acct, as `acct --version` prints it and meta.acct_version records it. */
#ifndef ACCT_VERSION
#define ACCT_VERSION "0.1.0"
#endif
