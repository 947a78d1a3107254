/*
 * UCX's header, read as a system header: 1.22's own macros draw warnings that are none of ours.
 */
#ifndef KVCL_UCX_GLUE_UCP_H
#define KVCL_UCX_GLUE_UCP_H

#pragma GCC system_header
#include <ucp/api/ucp.h>

#endif
