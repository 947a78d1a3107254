/*
 * KVCL_NET: which of its names are interfaces and which are RDMA ports, over a tree like that of /sys; and the port of
 * a socket.
 */
#include "config.h"
#include "test_base.h"
#include "base/net.h"
#include "topo/net_parse.h"

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char       root[] = "test_net.XXXXXX";
static kvcl_net_t net;

static void __attribute__((format(printf, 2, 3))) put(const char *text, const char *fmt, ...)
{
    char    path[512], *at;
    va_list ap;
    FILE    *file;
    size_t  used;

    used = (size_t)snprintf(path, sizeof(path), "%s/", root);
    va_start(ap, fmt);
    vsnprintf(path + used, sizeof(path) - used, fmt, ap);
    va_end(ap);
    for (at = path + used; (at = strchr(at, '/')) != NULL; ++at) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fprintf(file, "%s\n", text), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void add_port(const char *dev, unsigned port, const char *layer, const char *state)
{
    put(layer, "class/infiniband/%s/ports/%u/link_layer", dev, port);
    put(state, "class/infiniband/%s/ports/%u/state", dev, port);
}

static void add_gid(const char *dev, unsigned index, const char *gid, const char *type, const char *ndev)
{
    put(gid, "class/infiniband/%s/ports/1/gids/%u", dev, index);
    if (ndev != NULL) { /* the kernel refuses to read these of an empty row */
        put(type, "class/infiniband/%s/ports/1/gid_attrs/types/%u", dev, index);
        put(ndev, "class/infiniband/%s/ports/1/gid_attrs/ndevs/%u", dev, index);
    }
}

#define ZERO  "0000:0000:0000:0000:0000:0000:0000:0000"
#define LOCAL "fe80:0000:0000:0000:5054:00ff:fe00:0001"
#define IPV6  "2001:0db8:0000:0000:0000:0000:0000:0001"
#define IPV4  "0000:0000:0000:0000:0000:ffff:0a00:0001"

/*
 * eth0, eth1: no RDMA. eth2, its VLAN eth2.7: mlx5_0. eth3: mlx5_1, whose port is down. eth4: mlx5_2, without a GID.
 * eth5: mlx5_3, IPv6 only. eth6: mlx5_4, RoCE v1 only. mlx4_0: InfiniBand, its port 2 is down. mlx5_10, mlx5_11: eth7.
 */
static void set_up(void)
{
    static const char *const interfaces[] = {"lo", "eth0", "eth1", "eth2", "eth2.7", "eth3", "eth4", "eth5", "eth6",
                                             "eth7"};
    char   dev[16];
    size_t i;

    strcpy(root, "test_net.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    for (i = 0; i < sizeof(interfaces) / sizeof(interfaces[0]); ++i) {
        put("1500", "class/net/%s/mtu", interfaces[i]);
    }
    for (i = 0; i < 5; ++i) {
        snprintf(dev, sizeof(dev), "mlx5_%zu", i);
        add_port(dev, 1, "Ethernet", (i == 1) ? "1: DOWN" : "4: ACTIVE");
    }
    add_gid("mlx5_0", 0, LOCAL, "IB/RoCE v1", "eth2");
    add_gid("mlx5_0", 1, LOCAL, "RoCE v2", "eth2");
    add_gid("mlx5_0", 2, IPV4, "IB/RoCE v1", "eth2");
    add_gid("mlx5_0", 3, ZERO, NULL, NULL);
    add_gid("mlx5_0", 4, IPV4, "RoCE v2", "eth2");
    add_gid("mlx5_0", 5, IPV4, "RoCE v2", "eth2.7");
    add_gid("mlx5_1", 0, IPV4, "RoCE v2", "eth3");
    add_gid("mlx5_2", 0, ZERO, NULL, NULL);
    add_gid("mlx5_3", 0, LOCAL, "RoCE v2", "eth5");
    add_gid("mlx5_3", 1, IPV6, "RoCE v2", "eth5");
    add_gid("mlx5_4", 0, LOCAL, "IB/RoCE v1", "eth6");
    add_port("mlx4_0", 1, "InfiniBand", "4: ACTIVE");
    add_gid("mlx4_0", 0, "fe80:0000:0000:0000:0002:c903:0001:0203", NULL, NULL);
    add_port("mlx4_0", 2, "InfiniBand", "1: DOWN");
    for (i = 10; i < 12; ++i) {
        snprintf(dev, sizeof(dev), "mlx5_%zu", i);
        add_port(dev, 1, "Ethernet", "4: ACTIVE");
        add_gid(dev, 0, IPV4, "RoCE v2", "eth7");
    }
}

static int delete_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static void tear_down(void)
{
    ck_assert_int_eq(nftw(root, delete_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* The ports as "name/gid@ndev", a "!" behind those that the list has by name. */
static void parses(const char *names, const char *interfaces, const char *ports)
{
    char          text[1024] = "";
    kvcl_status_t status = kvcl_net_parse(names, root, &net);
    size_t        i;

    ck_assert_msg(status == KVCL_OK, "%s: %s", names, kvcl_last_error());
    for (i = 0; i < net.n_ports; ++i) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s/%d@%s%s", (i > 0) ? " " : "",
                 net.ports[i].name, net.ports[i].gid, net.ports[i].ndev, net.ports[i].by_name ? "!" : "");
    }
    ck_assert_str_eq(net.interfaces, interfaces);
    ck_assert_str_eq(text, ports);
}

static void is_refused(const char *names, const char *why)
{
    kvcl_status_t status = kvcl_net_parse(names, root, &net);

    ck_assert_msg(status == KVCL_ERR_INVALID_PARAM, "%s: %d", names, (int)status);
    ck_assert_msg(strstr(kvcl_last_error(), why) != NULL, "%s: %s", names, kvcl_last_error());
    ck_assert_msg(strstr(kvcl_last_error(), "mlx4_0:1, mlx5_0:1 (eth2), mlx5_3:1 (eth5), mlx5_4:1 (eth6), "
                         "mlx5_10:1 (eth7), mlx5_11:1 (eth7)") != NULL, "%s", kvcl_last_error());
}

START_TEST(interfaces_bring_their_ports)
{
    parses(NULL, "", "");
    parses("", "", "");
    parses(",,", "", "");
    parses("lo", "lo", "");
    parses("eth0,,eth1,", "eth0,eth1", "");
    parses(" eth0 , eth1,  ", "eth0,eth1", "");
    parses("eth2", "eth2", "mlx5_0:1/4@eth2");
    parses("eth2.7", "eth2.7", "mlx5_0:1/5@eth2.7");
    parses("eth2.7,eth2", "eth2.7,eth2", "mlx5_0:1/5@eth2.7"); /* a port has one GID */
    parses("eth5,eth2", "eth5,eth2", "mlx5_3:1/1@eth5 mlx5_0:1/4@eth2");
    parses("eth6", "eth6", "mlx5_4:1/0@eth6");
    parses("eth7", "eth7", "mlx5_10:1/0@eth7 mlx5_11:1/0@eth7");
    parses("eth3,eth4", "eth3,eth4", ""); /* a port that cannot be used: TCP alone */
    parses("nowhere,eth0:1", "nowhere,eth0:1", ""); /* kvcl_net_check_interfaces() refuses the first */
}
END_TEST

START_TEST(ports_are_named)
{
    parses("mlx5_0:1", "", "mlx5_0:1/4@eth2!");
    parses("mlx5_0", "", "mlx5_0:1/4@eth2!");
    parses("mlx5_0:1/1,eth0", "eth0", "mlx5_0:1/1@!");
    parses("eth0, mlx5_0:1/1 ", "eth0", "mlx5_0:1/1@!");
    parses("mlx5_3:1,mlx5_0:1", "", "mlx5_3:1/1@eth5! mlx5_0:1/4@eth2!");
    parses("mlx4_0:1", "", "mlx4_0:1/-1@!");
    parses("mlx4_0", "", "mlx4_0:1/-1@!"); /* its other port is down */
    parses("mlx5_0:1,mlx5_0:1", "", "mlx5_0:1/4@eth2!");
    parses("eth2,mlx5_0:1", "eth2", "mlx5_0:1/4@eth2!");
    parses("eth2,mlx5_0:1/5", "eth2", "mlx5_0:1/5@!"); /* the GID that was chosen by hand */
    parses("mlx5_0:1/5,eth2", "eth2", "mlx5_0:1/5@!");
    parses("all", "all", "mlx4_0:1/-1@ mlx5_0:1/4@eth2 mlx5_3:1/1@eth5 mlx5_4:1/0@eth6 mlx5_10:1/0@eth7 "
           "mlx5_11:1/0@eth7");
    parses("mlx5_11,all", "all", "mlx5_11:1/0@eth7! mlx4_0:1/-1@ mlx5_0:1/4@eth2 mlx5_3:1/1@eth5 mlx5_4:1/0@eth6 "
           "mlx5_10:1/0@eth7");
}
END_TEST

START_TEST(unusable_ports_are_refused)
{
    char long_list[KVCL_NET_LIST + 2];

    is_refused("eth0,nowhere_0:1", "no RDMA device \"nowhere_0\"");
    is_refused("nowhere_0:1/3", "no RDMA device \"nowhere_0\"");
    is_refused("mlx5_0:2", "\"mlx5_0\" has no port 2");
    is_refused("mlx5_1:1", "mlx5_1:1 is not active (1: DOWN): bring up its link and its interface;");
    is_refused("mlx5_1", "no port of RDMA device \"mlx5_1\"");
    is_refused("mlx4_0:2", "mlx4_0:2 is not active (1: DOWN): bring up its link; a subnet manager");
    is_refused("mlx5_2:1", "mlx5_2:1 has no GID");
    is_refused("mlx5_2", "no port of RDMA device \"mlx5_2\"");
    is_refused("mlx5_2:1/0", "mlx5_2:1 has no GID of index \"0\"");
    is_refused("mlx5_0:1/3", "mlx5_0:1 has no GID of index \"3\"");
    is_refused("mlx5_0:1/9", "mlx5_0:1 has no GID of index \"9\" (/sys/class/infiniband/mlx5_0/ports/1/gids lists");
    is_refused("mlx5_0:1/", "mlx5_0:1 has no GID of index \"\"");
    is_refused("mlx5_0:1/4x", "mlx5_0:1 has no GID of index \"4x\"");
    is_refused("mlx5_0:", "is no port");
    is_refused("mlx5_0:0", "is no port");
    is_refused("mlx5_0:1x", "is no port");
    is_refused("mlx5_0:-1", "is no port");
    is_refused("mlx5_0:4294967297", "is no port");
    is_refused("mlx5_0/1", "is no port");
    is_refused("eth0,:1", "\":1\" is no port");
    is_refused("/3", "\"/3\" is no port");
    is_refused("eth0 eth1:1", "no RDMA device \"eth0 eth1\"");
    is_refused("../infiniband/mlx5_0:1", "no RDMA device");
    is_refused("/etc:1", "\"/etc:1\" is no port");
    memset(long_list, ',', sizeof(long_list) - 1);
    long_list[sizeof(long_list) - 1] = '\0';
    ck_assert_int_eq(kvcl_net_parse(long_list, root, &net), KVCL_ERR_INVALID_PARAM);
}
END_TEST

START_TEST(a_host_without_rdma)
{
    ck_assert_int_eq(kvcl_net_parse("mlx5_0:1", "/nonexistent", &net), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "can be used: none"));
    ck_assert_int_eq(kvcl_net_parse("all,eth0", "/nonexistent", &net), KVCL_OK);
    ck_assert_str_eq(net.interfaces, "all,eth0");
    ck_assert_uint_eq(net.n_ports, 0);
}
END_TEST

/* The sentence has the interfaces of this machine, and the ports of the tree. */
START_TEST(an_unknown_interface_is_refused)
{
    ck_assert_int_eq(kvcl_net_parse("lo,nowhere0", root, &net), KVCL_OK);
    ck_assert_int_eq(kvcl_net_check_interfaces(&net, root), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "no network interface or RDMA device \"nowhere0\"; its "));
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "can be used: mlx4_0:1, mlx5_0:1 (eth2), "));
    ck_assert_int_eq(kvcl_net_check_interfaces(&net, "/nonexistent"), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_null(strstr(kvcl_last_error(), "RDMA ports"));
    ck_assert_int_eq(kvcl_net_parse("all,mlx5_0:1", root, &net), KVCL_OK);
    ck_assert_int_eq(kvcl_net_check_interfaces(&net, root), KVCL_OK);
    ck_assert_int_eq(kvcl_net_parse("mlx5_0:1", root, &net), KVCL_OK);
    ck_assert_int_eq(kvcl_net_check_interfaces(&net, root), KVCL_OK);
}
END_TEST

START_TEST(rdma_is_required)
{
    ck_assert_int_eq(kvcl_net_no_port(NULL, root), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "KVCL_PATH=rdma needs KVCL_NET to name an RDMA port"));
    ck_assert_ptr_null(strstr(kvcl_last_error(), "names none"));
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "can be used: mlx4_0:1, mlx5_0:1 (eth2), "));
    ck_assert_int_eq(kvcl_net_no_port("lo,eth0", "/nonexistent"), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "(\"lo,eth0\" names none)"));
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "can be used: none"));
}
END_TEST

/* As many as the result has room for, and no more. */
START_TEST(many_ports)
{
    char     dev[16];
    unsigned i;

    for (i = 20; i < 20 + KVCL_NET_PORTS + 2; ++i) {
        snprintf(dev, sizeof(dev), "mlx5_%u", i);
        add_port(dev, 1, "Ethernet", "4: ACTIVE");
        add_gid(dev, 0, IPV4, "RoCE v2", "eth1");
    }
    ck_assert_int_eq(kvcl_net_parse("eth1", root, &net), KVCL_OK);
    ck_assert_uint_eq(net.n_ports, KVCL_NET_PORTS);
    ck_assert_str_eq(net.ports[KVCL_NET_PORTS - 1].name, "mlx5_35:1");
}
END_TEST

/* A connection to the port that it says arrives. */
START_TEST(a_socket_has_a_port)
{
    static const uint8_t    at[2][16] = {{127, 0, 0, 1}, {[15] = 1}};
    const uint8_t           family    = (_i == 0) ? 4 : 6;
    struct sockaddr_storage ss;
    socklen_t               len = kvcl_net_sockaddr(family, at[_i], 0, &ss);
    int                     fd  = socket(ss.ss_family, SOCK_STREAM, 0), to;

    if ((fd < 0) || (bind(fd, (struct sockaddr *)&ss, len) != 0)) {
        ck_assert_uint_eq(family, 6);
        printf("this host has no IPv6\n");
        return;
    }
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_uint_ne(kvcl_net_port(fd), 0);
    len = kvcl_net_sockaddr(family, at[_i], kvcl_net_port(fd), &ss);
    to  = socket(ss.ss_family, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(to, (struct sockaddr *)&ss, len), 0);
    close(to);
    close(fd);
}
END_TEST

START_TEST(others_have_none)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_uint_eq(kvcl_net_port(fd), 0);
    ck_assert_uint_eq(kvcl_net_port(-1), 0);
    close(fd);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("net");
    Suite *suite = suite_create("net");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, interfaces_bring_their_ports);
    tcase_add_test(tcase, ports_are_named);
    tcase_add_test(tcase, unusable_ports_are_refused);
    tcase_add_test(tcase, an_unknown_interface_is_refused);
    tcase_add_test(tcase, a_host_without_rdma);
    tcase_add_test(tcase, rdma_is_required);
    tcase_add_test(tcase, many_ports);
    tcase_add_loop_test(tcase, a_socket_has_a_port, 0, 2);
    tcase_add_test(tcase, others_have_none);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
