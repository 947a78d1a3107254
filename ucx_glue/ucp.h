/*
 * UCX's header, read as a system header: the macros of 1.22 cause warnings that KVCL cannot fix.
 */
#ifndef KVCL_UCX_GLUE_UCP_H
#define KVCL_UCX_GLUE_UCP_H

#pragma GCC system_header
#include <ucp/api/ucp.h>

#endif
