package io.ductor.client;

import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DescriptorProtos.MethodOptions.IdempotencyLevel;
import io.ductor.workflow.v1.*;
import io.grpc.*;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Connections to Ductor, with the credentials, load balancing and retries that every caller wants. */
public final class Ductor {
  private static final List<FileDescriptor> SERVICES = List.of(
      AdminServiceProto.getDescriptor(),
      ScheduleServiceProto.getDescriptor(),
      TaskServiceProto.getDescriptor(),
      WorkflowDefinitionServiceProto.getDescriptor(),
      WorkflowRunControlServiceProto.getDescriptor(),
      WorkflowServiceProto.getDescriptor(),
      WorkflowSignalServiceProto.getDescriptor(),
      WorkflowTriggerServiceProto.getDescriptor());

  private Ductor() {}

  /**
   * A channel to DUCTOR_TARGET ({@code host:port}, or any name that gRPC resolves) in the name of DUCTOR_API_KEY and DUCTOR_TENANT_ID; over TLS where
   * DUCTOR_TARGET_CA_FILE names the authority to trust.
   */
  public static ManagedChannel connect() throws IOException {
    var target = System.getenv("DUCTOR_TARGET");
    if (target == null) {
      throw new IllegalStateException("DUCTOR_TARGET is not set: host:port of the gRPC port");
    }
    var authority = System.getenv("DUCTOR_TARGET_CA_FILE");
    var transport = authority == null
        ? InsecureChannelCredentials.create()
        : TlsChannelCredentials.newBuilder().trustManager(new File(authority)).build();
    var caller = new Metadata();
    var key = System.getenv("DUCTOR_API_KEY");
    if (key != null) {
      caller.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + key);
    }
    var tenant = System.getenv("DUCTOR_TENANT_ID");
    if (tenant != null) {
      caller.put(Metadata.Key.of("x-tenant-id", Metadata.ASCII_STRING_MARSHALLER), tenant);
    }
    return Grpc.newChannelBuilder(target, transport)
        .intercept(MetadataUtils.newAttachHeadersInterceptor(caller))
        .defaultLoadBalancingPolicy("round_robin")
        .defaultServiceConfig(retries())
        .keepAliveTime(30, TimeUnit.SECONDS)
        .keepAliveTimeout(10, TimeUnit.SECONDS)
        .maxInboundMessageSize(8 << 20)
        .build();
  }

  /**
   * Repeats a call to a service that is unavailable where the contract says that it may be repeated. Any other call is repeated only by who knows that
   * it may: a trigger with an idempotency key, a control with a request id.
   */
  private static Map<String, ?> retries() {
    var repeatable = SERVICES.stream()
        .flatMap(file -> file.getServices().stream())
        .flatMap(service -> service.getMethods().stream())
        .filter(method -> method.getOptions().getIdempotencyLevel() != IdempotencyLevel.IDEMPOTENCY_UNKNOWN)
        .map(method -> Map.of("service", method.getService().getFullName(), "method", method.getName()))
        .toList();
    var policy = Map.of(
        "maxAttempts", 4.0, "initialBackoff", "0.1s", "maxBackoff", "1s", "backoffMultiplier", 2.0,
        "retryableStatusCodes", List.of("UNAVAILABLE", "CANCELLED")); // the latter from a server that stops before it took the call up
    return Map.of("methodConfig", List.of(Map.of("name", repeatable, "retryPolicy", policy)));
  }

  /**
   * Follows a run until its last message. A stream that breaks because its server goes away is opened again, behind what was already told.
   *
   * @throws StatusRuntimeException where the run cannot be followed
   */
  public static void watch(ManagedChannel channel, String runId, Consumer<WatchRunResponse> seen) throws InterruptedException {
    var request = WatchRunRequest.newBuilder().setRunId(runId);
    while (true) {
      // Of its own context, so that the stream ends when we are through with it.
      var context = Context.current().withCancellation();
      var before = context.attach();
      try {
        Iterator<WatchRunResponse> stream = WorkflowServiceGrpc.newBlockingStub(channel).watchRun(request.build());
        while (stream.hasNext()) {
          var message = stream.next();
          request.setRunId(message.getRunId()).setAfterSeq(message.getSeq());
          seen.accept(message);
          if (message.getEnded()) {
            return;
          }
        }
        return;
      } catch (StatusRuntimeException error) {
        // Cancelled, and not by us: a server that stopped before it took the call up.
        var again = Set.of(Status.Code.UNAVAILABLE, Status.Code.CANCELLED).contains(error.getStatus().getCode());
        if (!again || before.isCancelled()) {
          throw error;
        }
      } finally {
        context.detach(before);
        context.cancel(null);
      }
      Thread.sleep(500);
      channel.resetConnectBackoff(); // by itself the channel would wait up to two minutes before it connects again
    }
  }
}
